// The epilogue of a tile whose rows are output channels of several polyphase components (interleave.h): epilogue tiles
// of 16 positions by 32 rows, as in finish.cuh, which are loaded from shared memory as the result's vectors.
#pragma once

#include "kernels/operators/conv1d/dense/dense.cuh"
#include "kernels/operators/conv1d/dense/finish.cuh"
#include "kernels/operators/conv1d/interleaved/interleave.h"

namespace sluice {

// `channels` and `output_length` are the sums' rows and positions; `post` has the result's channels and positions.
struct InterleavedArguments : DenseArguments {
  Interleave interleave;
  bool has_spans;  // a warpgroup can store adjacent results: the channels of 32 rows begin whole words further
};

inline void fill(InterleavedArguments& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(static_cast<DenseArguments&>(a), params, plan);
  a.interleave = params.interleave;
  const long long channels = kEpilogueColumns >> params.interleave.component_bits;
  a.has_spans = params.interleave.by_positions && channels * params.output.strides[1] % kDensePostWidth == 0;
  const long long results[3] = {params.batch, params.interleave.channels, params.interleave.length};
  a.aligned_vectors = has_words(params.output, results, plan.dense.by_positions ? 2 : 1);
  a.post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, results);
}

// Where a lane stores its sums among spans of 64 adjacent results (UnalignedRows), as they lie in the registers that
// the products leave them in (wgmma.cuh): 16-byte rows of matrices, or pairs of components of fewer than eight.
struct SpanPlaces {
  bool has_pairs;
  std::uint32_t first, second;  // bytes: of two matrix rows, or of the pairs of the lane's two positions

  __device__ __forceinline__ SpanPlaces(const Interleave& interleave, int warp, int lane)
      : has_pairs(interleave.components < kEpilogueVector) {
    const int position = warp * 16 + (has_pairs ? lane / 4 : lane % 16), row = has_pairs ? lane % 4 * 2 : lane / 16 * 8;
    first = kept(interleave.span_byte(position, row));
    second = kept(interleave.span_byte(position + (has_pairs ? 8 : 0), row + (has_pairs ? 0 : 16)));
  }
  template <class Element>
  __device__ __forceinline__ void store(std::uint32_t to, const float (&values)[16]) const {
    std::uint32_t pairs[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) pairs[i] = Pair<Element>::store(values[2 * i], values[2 * i + 1]);
    if (!has_pairs) {
      store_matrices<false>(to + first, {pairs[0], pairs[1], pairs[2], pairs[3]});
      return store_matrices<false>(to + second, {pairs[4], pairs[5], pairs[6], pairs[7]});
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // pairs of eight rows further are eight spans further
      const std::uint32_t at = to + (i % 2 == 0 ? first : second) + i / 2 * 8 * kSpanBytes;
      asm volatile("st.shared.b32 [%0], %1;" : : "r"(at), "r"(pairs[i]) : "memory");
    }
  }
};

template <class Post, class Element, int Blocks, int Channels>
struct InterleavedEpilogueTiles {
  static constexpr int kColumns = Channels / kEpilogueColumns, kCount = Blocks * kColumns;
  using SharedRows = EpilogueTile</*ByPositions=*/false>;  // one for each position
  const InterleavedArguments& a;
  const DenseSums<Blocks, Channels>& sums;
  DenseTile tile;
  float* staged;
  const float* bias;
  int lane;

  __device__ __forceinline__ int position(int p) const { return tile.position + p / kColumns * 64; }
  __device__ __forceinline__ int row(int p) const { return tile.channel + p % kColumns * kEpilogueColumns; }
  __device__ __forceinline__ bool exists(int p) const {  // for all of the warp
    return position(p) < a.output_length && row(p) < a.channels;
  }
  __device__ __forceinline__ EpilogueVector vector(int slice) const {
    return a.interleave.epilogue_vector(lane + slice * 32);
  }
  __device__ __forceinline__ ResultVector result(int p, int slice) const {
    const EpilogueVector own = vector(slice);
    return a.interleave.result_vector(position(p) + own.position, row(p) + own.row);
  }
  __device__ __forceinline__ Place place(const long long* strides, const ResultVector& own) const {
    return {.offset = tile.batch * strides[0] + own.channel * strides[1] + own.position * strides[2],
            .stride = a.interleave.by_positions ? strides[2] : strides[1],
            .first = own.first,
            .last = own.last};
  }

  // A vector of half types from where round_sums stored it.
  __device__ __forceinline__ Word load_rounded(const EpilogueVector& own) const {
    constexpr int kRowBytes = kEpilogueRowBytes<false>;
    const auto offset_of = [&](const EpilogueVector& at) {
      return swizzled(static_cast<std::uint32_t>(at.position * kRowBytes + at.row * 2), kRowBytes);
    };
    if (!a.interleave.has_short_spans()) return load_shared_word(shared_address(staged) + offset_of(own));
    Word word;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t offset = offset_of(a.interleave.element(own, 2 * i));
      word.lanes[i] = *reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const char*>(staged) + offset);
    }
    return word;
  }

  // Where an epilogue tile's first element is, if all exist.
  __device__ __forceinline__ Element* first_element(int p) const {
    const ResultVector first = a.interleave.result_vector(position(p), row(p));
    return a.output.as<Element>() + place(a.output.strides, first).offset;
  }

  // The vectors of sums from where to_shared stored them, plus the bias.
  __device__ __forceinline__ void load(int p, float (&values)[16]) const {
    const float* const own_bias = bias + p % kColumns * kEpilogueColumns;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const EpilogueVector own = vector(s);
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const EpilogueVector at = a.interleave.element(own, i);
        const int column = at.row ^ SharedRows::twist(at.position);
        const float2 pair = *reinterpret_cast<const float2*>(staged + at.position * SharedRows::kPitch + column);
        const float2 added = *reinterpret_cast<const float2*>(own_bias + at.row);
        values[s * 8 + i] = pair.x + added.x, values[s * 8 + i + 1] = pair.y + added.y;
      }
    }
  }

  // Stores an epilogue tile's vectors, each contiguous. By all lanes of the warp.
  __device__ __forceinline__ void store(int p, const float (&values)[16]) const {
    const VectorWords<Element> vectors(values);
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const ResultVector own = result(p, s);
        Element* const to = a.output.as<Element>() + place(a.output.strides, own).offset;
        const bool whole = own.first == 0 && own.last == kEpilogueVector;
        const int lanes = a.interleave.span_lanes(), in_span = lane & (lanes - 1);
        if (lanes > 1 && __all_sync(0xffffffff, whole)) {
          const Word words[2] = {vectors.words[2 * s], vectors.words[2 * s + 1]};
          store_whole_span(to - in_span * kEpilogueVector, words, in_span, lanes);
        } else {
          store_elements<Element, kEpilogueVector>(to, 1, own.first, own.last, values + s * kEpilogueVector);
        }
      }
    } else {
      store_words(p, vectors.words);
    }
  }
  __device__ __forceinline__ void store_words(int p, const Word (&words)[2]) const {
    const int lanes = a.interleave.span_lanes();
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const ResultVector own = result(p, s);
      Element* const to = a.output.as<Element>() + place(a.output.strides, own).offset;
      const bool whole = own.first == 0 && own.last == kEpilogueVector;
      if (lanes > 1 && __all_sync(0xffffffff, whole)) {
        const int in_span = lane & (lanes - 1);
        store_whole_span(to - in_span * kEpilogueVector, words[s], in_span, lanes);
      } else if (whole && a.aligned_vectors && lanes == 1) {
        store_global_word(to, words[s]);
      } else {
        store_word_elements(to, words[s], own.first, own.last);
      }
    }
  }

  // The warp's existing epilogue tiles. Not unrolled, or the code would not fit into the instruction cache.
  template <class Finish>
  __device__ __forceinline__ void for_each_epilogue_tile(const Finish& finish) const {
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      if (exists(p)) finish(p);
    }
  }

  __device__ __forceinline__ void choose_sums(int m, int column, float (&values)[16]) const {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        if (i == m) values[j] = sums[i][column * (kEpilogueColumns / 2) + j];
      }
    }
  }

  // Channels-last vectors that all exist: a lane's vectors are at the same place of each epilogue tile. Loops over
  // columns are unrolled, or choosing a tile's sums would take more than its store.
  __device__ __forceinline__ void finish_vectors(int m) const {
    const EpilogueVector own[2] = {vector(0), vector(1)};
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      float values[16];
      choose_sums(m, column, values);
      round_sums<Post, Element, false>(a, lane, values, shared_address(staged), bias + column * kEpilogueColumns);
      Element* const to = first_element(m * kColumns + column);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        store_global_word(to + a.interleave.offset(own[s], a.output.strides), load_rounded(own[s]));
      }
    }
  }

  // Channels-first results that all exist, by the warpgroup: 64 positions of 32 rows are 32 spans of 64 adjacent
  // results, which pass through shared memory at `rows`.
  __device__ __forceinline__ void finish_spans(int m, int warpgroup, int warp, std::uint32_t rows) const {
    const ResultVector first = a.interleave.result_vector(tile.position - warp * 16 + m * 64, tile.channel);
    Element* const result = a.output.as<Element>() + place(a.output.strides, first).offset;
    const UnalignedRows<Element> unaligned(
        warp, lane, [&](int span) { return result + a.interleave.span_offset(span, a.output.strides[1]); });
    const SpanPlaces places(a.interleave, warp, lane);
    std::uint32_t shared_rows = rows;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      float values[16];
      choose_sums(m, column, values);
      change_sums<Post>(a, lane, values, bias + column * kEpilogueColumns);
      places.store<Element>(shared_rows, values);
      await_warpgroup(warpgroup);
      const long long channels = column * (kEpilogueColumns >> a.interleave.component_bits);
      unaligned.store(shared_rows, channels * a.output.strides[1], kEpilogueColumns,
                      UnalignedRows<Element>::kPositions);
      shared_rows = 2 * rows + UnalignedRows<Element>::kBytes - shared_rows;  // other warps may still read
    }
  }

  // At the ends of the result, and where vectors are not aligned.
  __device__ __forceinline__ void finish_edge(int m) const {
#pragma unroll 1
    for (int p = m * kColumns; p < (m + 1) * kColumns; ++p) {
      if (!exists(p)) continue;
      float values[16];
      with_tile_sums<Blocks, Channels>(sums, p, [&](const float* own) {
#pragma unroll
        for (int i = 0; i < 16; ++i) values[i] = own[i];
      });
      round_sums<Post, Element, false>(a, lane, values, shared_address(staged), bias + p % kColumns * kEpilogueColumns);
      store_words(p, {load_rounded(vector(0)), load_rounded(vector(1))});
    }
  }

  // Half types and a chain without tensors, for each block of 64 positions.
  __device__ __forceinline__ void finish_without_tensors(int warpgroup, int warp, std::uint32_t rows) const {
#pragma unroll 1
    for (int m = 0; m < Blocks; ++m) {
      const int first_position = tile.position - warp * 16 + m * 64;
      const bool are_whole = a.interleave.are_whole(first_position, 64, tile.channel, Channels);
      if (a.has_spans) await_warpgroup(warpgroup);  // the previous block is stored
      if (are_whole && a.has_spans) {
        finish_spans(m, warpgroup, warp, rows);
      } else if (are_whole && a.aligned_vectors && !a.interleave.by_positions) {
        finish_vectors(m);
      } else {
        finish_edge(m);
      }
    }
  }

  // A chain with tensors, or vectors that are not contiguous: through float32 in shared memory.
  __device__ __forceinline__ void finish_any() const {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
    for_each_epilogue_tile([&](int p) {
      float values[16];
      __syncwarp();
      with_tile_sums<Blocks, Channels>(sums, p, [&](const float* own) { SharedRows{lane}.to_shared(own, staged); });
      __syncwarp();
      load(p, values);
      const auto place_of = [&](const long long* strides, int s) { return place(strides, result(p, s)); };
      if (a.whole_vectors) {
        run_chain<Post, 8, 2>(a.post, place_of, values);
        store(p, values);
      } else {
        finish_slices<Post, 8, 2>(a.post, a.output, dtype, place_of, values);
      }
    });
  }
};

template <class Post, class Element, int Blocks, int Channels, bool>
__device__ __forceinline__ void finish_tile(const InterleavedArguments& a, const DenseTile& tile, DenseShared& shared,
                                            int warpgroup, const DenseSums<Blocks, Channels>& sums) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const DenseTile own = {tile.batch, tile.position + first_position<Blocks>(a, warpgroup) + warp * 16, tile.channel};
  const InterleavedEpilogueTiles<Post, Element, Blocks, Channels> tiles{
      a, sums, own, shared.epilogue[warpgroup * 4 + warp], shared.bias[warpgroup], own_lane()};
  if constexpr (sizeof(Element) == 2) {
    if (a.whole_vectors && !Post{a.post}.has_operands()) {
      return tiles.finish_without_tensors(warpgroup, warp, shared_address(shared.epilogue[warpgroup * 4]));
    }
  }
  tiles.finish_any();
}

template <int Channels>
__device__ __forceinline__ void load_bias(const InterleavedArguments& a, const DenseTile& tile, DenseShared& shared,
                                          int warpgroup) {
  const int own = threadIdx.x % 128;
  await_warpgroup(warpgroup);  // the previous tile is stored
  if (own < Channels) {
    const int channel = a.interleave.channel_of(tile.channel + own);
    const bool exists = a.bias.exists() && channel >= 0;
    shared.bias[warpgroup][own] =
        exists ? load_as<float>(a.bias.data, known_dtype(LinkedTensor::bias, a.bias.dtype), channel * a.bias.strides[0])
               : 0.0f;
  }
  await_warpgroup(warpgroup);
}

template <class Element, int Blocks, int Channels>
struct Interpreted<InterleavedKernel::interleaved, Element, Blocks, Channels>
    : InterpretedDense<InterleavedArguments, Element, Blocks, Channels, /*ByPositions=*/false> {};

}  // namespace sluice
