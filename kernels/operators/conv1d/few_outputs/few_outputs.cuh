// conv1d of half types with few output channels, on tensor cores (mma.sync): sums over input channels first, then over
// taps.
//
//   input --16 bytes a lane, `pre`--> registers --mma, weights in shared memory--> P in registers (fragment_layout.h)
//                                                                                           |
//   shared memory   | weights, in fragment layout | P: a row of positions for each column |<--
//                                                              |
//   output[c][l] = bias + P[c, tap 0][l] + P[c, tap 1][l + dilation] + ..., in this order, then `post`
//
// A block takes every `grid`-th tile; the halo of its taps is read again by the next tile. Each warp reads 64 positions
// with eight words a lane in flight. While a block adds and stores, the SM's other blocks keep memory busy.
#pragma once

#include "kernels/operators/conv1d/few_outputs/fetch.cuh"
#include "kernels/shared/mma/mma_sync.cuh"

namespace sluice {

// A warp's sums: with contiguous channels four tiles of 16 positions by Columns / 8 of columns; else eight tiles of
// eight positions by Columns / 16 of columns.
template <int Columns, bool ByPositions>
struct WarpSums {
  static constexpr int kPositionTiles = ByPositions ? 8 : 4, kColumnTiles = Columns / (ByPositions ? 16 : 8);
  float of[kPositionTiles][kColumnTiles][4] = {};
};

// Element `j` of two words, as a register of an mma fragment.
__device__ __forceinline__ std::uint32_t pair_of(const Word& low, const Word& high, int j) {
  return __byte_perm(low.lanes[j / 2], high.lanes[j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
}

// sums += the words' products. `weights`: the lane's word of the k-block's first fragment.
template <class Element, int Columns, bool ByPositions>
__device__ __forceinline__ void multiply_words(const Word (&words)[kFewOutputsWords], std::uint32_t weights,
                                               WarpSums<Columns, ByPositions>& sums) {
  constexpr int kTiles = WarpSums<Columns, ByPositions>::kColumnTiles, kFragmentBytes = 32 * kWordBytes;
  if constexpr (ByPositions) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const Word* const own = words + step * 4;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const Word weight = load_shared_word(weights + (step * kTiles + tile) * kFragmentBytes);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          multiply_add<Element>(sums.of[j][tile], weight.lanes,
                                make_uint2(pair_of(own[0], own[1], j), pair_of(own[2], own[3], j)));
        }
      }
    }
  } else {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const Word weight = load_shared_word(weights + tile * kFragmentBytes);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const Word &upper = words[2 * m], &lower = words[2 * m + 1];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const std::uint32_t rows[4] = {upper.lanes[2 * step], lower.lanes[2 * step], upper.lanes[2 * step + 1],
                                         lower.lanes[2 * step + 1]};
          multiply_add<Element>(sums.of[m][tile], rows, make_uint2(weight.lanes[2 * step], weight.lanes[2 * step + 1]));
        }
      }
    }
  }
}

// The warp's sums over all channels.
template <bool Whole, class Pre, class Element, int Columns, bool ByPositions>
__device__ __forceinline__ void multiply(const FewOutputsArguments& a, const FewOutputsTile& tile, int warp, int lane,
                                         std::uint32_t weights, WarpSums<Columns, ByPositions>& sums) {
  constexpr int kFragmentBytes = 32 * kWordBytes;
  const int in_tile = warp * kWarpPositions, end = min_of(a.length, tile.first + tile.needed);
  const int position = tile.first + in_tile + word_position(ByPositions, lane, 0);
  const int channel = word_channel(ByPositions, lane, 0);
  const Element* from = a.input.template as<const Element>() + tile.batch * a.input.strides[0] +
                        channel * a.input.strides[1] + (ByPositions ? 0 : position * a.input.strides[2]);
  weights += lane * kWordBytes;
#pragma unroll 1
  for (int begin = 0; begin < a.input_channels; begin += kFewOutputsChannels) {
    const int left = a.input_channels - begin - channel;  // channels from the lane's first on
    const auto span_of = [&](int i) {
      if constexpr (ByPositions) {
        const int further = word_channel(true, 0, i);
        return SpanWord<Element>{from + further * a.input.strides[1], position, further < left ? a.length : 0};
      } else {
        const int further = word_position(false, 0, i), own = position + further;
        return SpanWord<Element>{from + further * a.input.strides[2], 0, own >= 0 && own < end ? left : 0};
      }
    };
    Word words[kFewOutputsWords];
    if constexpr (Whole) {
      load_whole_words<Element>(span_of, words);
    } else {
      load_shifted_words<Element>(a, span_of, words);
    }
    if (!Pre{a.pre}.empty()) {
#pragma unroll
      for (int i = 0; i < kFewOutputsWords; ++i) {
        const SpanWord<Element> span = span_of(i);
        if (!span.exists()) continue;
        const int own_channel = begin + channel + (ByPositions ? word_channel(true, 0, i) : 0);
        const int own_position = position + (ByPositions ? 0 : word_position(false, 0, i));
        constexpr int kDimension = ByPositions ? 2 : 1;
        if constexpr (Pre::kIsInline) {
          words[i] = apply_pre<Pre, Element>(a, words[i], tile.batch, own_channel, own_position, kDimension, span.first,
                                             span.count);
        } else {
          words[i] = apply_long_pre<Pre, Element>(a, words[i], tile.batch, own_channel, own_position, kDimension,
                                                  span.first, span.count);
        }
      }
    }
    __syncwarp();  // lanes at an edge have diverged
    multiply_words<Element>(words, weights, sums);
    weights += fragments_of_k_block(Columns) * kFragmentBytes;
    from += kFewOutputsChannels * a.input.strides[1];
  }
}

// Stores sums to their rows of P. `to`: row 0 at the warp's first position; columns beyond `columns` have no row.
template <int Columns, bool ByPositions>
__device__ __forceinline__ void store_sums(const WarpSums<Columns, ByPositions>& sums, float* to, int lane,
                                           int columns) {
  const int g = lane / 4, t = lane % 4;
  constexpr int kTiles = WarpSums<Columns, ByPositions>::kColumnTiles;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if constexpr (ByPositions) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = tile * 16 + half * 8 + g;
        if (column >= columns) continue;
        // Sums 2 half and 2 half + 1 of product j belong to positions 16 t + j and 16 t + 8 + j.
        float* const row = to + column * kSumPitch + t * 16;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const int j = q % 2 * 4, e = 2 * half + q / 2;
          *reinterpret_cast<float4*>(row + q * 4) = make_float4(sums.of[j][tile][e], sums.of[j + 1][tile][e],
                                                                sums.of[j + 2][tile][e], sums.of[j + 3][tile][e]);
        }
      }
    } else {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = tile * 8 + t * 2 + e;
        if (column >= columns) continue;
        float* const row = to + column * kSumPitch + g;
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          row[m * 16] = sums.of[m][tile][e];
          row[m * 16 + 8] = sums.of[m][tile][2 + e];
        }
      }
    }
  }
}

// The sums over taps, bias and `post`, two adjacent outputs a thread.
template <class Post>
__device__ __forceinline__ void finish_tile(const FewOutputsArguments& a, const FewOutputsTile& tile,
                                            const float* sums) {
  const int outputs = tile.end - tile.begin, step = kSumPitch + a.dilation;
#pragma unroll 1
  for (int channel = 0; channel < a.channels; ++channel) {
    const float bias = a.bias_of(channel);
    const float* const row = sums + channel * a.taps * kSumPitch + a.shift;
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) * 2; at < outputs; at += kFewOutputsThreads * 2) {
      const float* from = row + at;
      float values[kFewOutputsPostWidth] = {bias, bias};
      for (int k = 0; k < a.taps; ++k, from += step) {
        values[0] += from[0];
        values[1] += from[1];
      }
      const auto place_of = [&](const long long* strides, int) {
        return Place{.offset = tile.batch * strides[0] + channel * strides[1] + (tile.begin + at) * strides[2],
                     .stride = strides[2],
                     .first = 0,
                     .last = min_of(outputs - at, kFewOutputsPostWidth)};
      };
      finish_slices<Post, kFewOutputsPostWidth, 1>(a.post, a.output, a.output_type(), place_of, values);
    }
  }
}

template <class Chains, class Element, int Columns, bool ByPositions>
__device__ __forceinline__ void few_outputs(const FewOutputsArguments& a) {
  extern __shared__ Word shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const auto weights = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  auto* const sums = reinterpret_cast<float*>(shared) + weight_bytes(a.input_channels, Columns) / sizeof(float);

  fetch_weights<Element, Columns, ByPositions>(a, weights);
  __syncthreads();
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const FewOutputsTile tile(a, index);
    if (warp * kWarpPositions < tile.needed) {
      WarpSums<Columns, ByPositions> own;
      if (a.whole_words) {
        multiply<true, typename Chains::Pre, Element>(a, tile, warp, lane, weights, own);
      } else {
        multiply<false, typename Chains::Pre, Element>(a, tile, warp, lane, weights, own);
      }
      store_sums(own, sums + warp * kWarpPositions, lane, a.channels * a.taps);
    }
    __syncthreads();  // P is complete
    finish_tile<typename Chains::Post>(a, tile, sums);
    __syncthreads();  // and no longer read
  }
}

// Without a chain.
template <class Element, int Columns, bool ByPositions>
__global__ void __launch_bounds__(kFewOutputsThreads, few_outputs_blocks(Columns))
    plain_few_outputs_kernel(const __grid_constant__ FewOutputsArguments a) {
  few_outputs<NoChains, Element, Columns, ByPositions>(a);
}

template <class Element, int Columns, bool ByPositions>
__global__ void __launch_bounds__(kFewOutputsThreads, few_outputs_blocks(Columns))
    interpreted_few_outputs_kernel(const __grid_constant__ FewOutputsArguments a) {
  few_outputs<FewOutputsChains::Interpreted, Element, Columns, ByPositions>(a);
}

template <class Element, int Columns, bool ByPositions>
struct InterpretedFewOutputs {
  static Kernel<FewOutputsArguments> of(const Conv1dParams& params) {
    return params.pre.empty() && params.post.empty() ? plain_few_outputs_kernel<Element, Columns, ByPositions>
                                                     : interpreted_few_outputs_kernel<Element, Columns, ByPositions>;
  }
};
template <class Element>
struct Interpreted<FewOutputsKernel::few_outputs_channels_16, Element>
    : InterpretedFewOutputs<Element, kFewColumns, /*ByPositions=*/false> {};
template <class Element>
struct Interpreted<FewOutputsKernel::few_outputs_channels_32, Element>
    : InterpretedFewOutputs<Element, kMostColumns, /*ByPositions=*/false> {};
template <class Element>
struct Interpreted<FewOutputsKernel::few_outputs_positions_16, Element>
    : InterpretedFewOutputs<Element, kFewColumns, /*ByPositions=*/true> {};
template <class Element>
struct Interpreted<FewOutputsKernel::few_outputs_positions_32, Element>
    : InterpretedFewOutputs<Element, kMostColumns, /*ByPositions=*/true> {};

}  // namespace sluice
