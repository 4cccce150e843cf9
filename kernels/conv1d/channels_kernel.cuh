// Depthwise conv1d, channels last: a vector is consecutive channels of one position.
//
// A block covers 8 vectors of channels by 64 positions. A thread has one vector of channels and 4
// consecutive positions; the taps of the block's channels lie in shared memory, one row of channels a tap.
//
//                     channels ->  128 bytes of each position
//   position t     | v0 v1 v2 .. v7 |   threads 0..7   positions 0..3 each
//   position t+4   | v0 v1 v2 .. v7 |   threads 8..15
//
// In a ring a stage holds the block's inputs, zeros and history filled in, and its taps:
//   [ (63 stride + (taps - 1) dilation + 1) positions x 8 words | taps x channels ]
#pragma once

#include "kernels/common/store.cuh"
#include "kernels/conv1d/arguments.cuh"
#include "kernels/pipeline/pipe.cuh"

namespace sluice {

// A block's tile: 8 vectors of channels by 64 outputs.
struct ChannelTile {
  long long batch, channel, position;
};

template <int Width, class Element>
__device__ __forceinline__ ChannelTile channel_tile(const Conv1dArguments<Element>& a, long long tile) {
  // Channels first: neighbouring blocks read neighbouring memory.
  const long long upper = a.by_across.quotient(tile);
  const long long batch = a.by_along.quotient(upper);
  return {batch, (tile - upper * a.by_across.divisor) * (kChannelVectors * Width),
          (upper - batch * a.by_along.divisor) * kTilePositions};
}

template <class Element>
__device__ __forceinline__ bool is_whole_vector(const Conv1dArguments<Element>& a, const Element* address, long long channel,
                                                long long position) {
  return a.input_strides[1] == 1 && position >= 0 && position < a.length && channel + kWordElements<Element> <= a.channels &&
         is_word_aligned(address);
}

// Every input of the tile is there and every vector of it is whole: no load needs a check.
template <class Element>
__device__ __forceinline__ bool is_interior(const Conv1dArguments<Element>& a, const ChannelTile& tile) {
  constexpr int kChannels = kChannelVectors * kWordElements<Element>;
  const long long first = tile.position * a.stride - a.padding;
  const long long last = first + (kTilePositions - 1) * a.stride + (a.taps - 1) * a.dilation;
  const Element* const corner = a.input + tile.batch * a.input_strides[0] + tile.channel + first * a.input_strides[2];
  return a.input_strides[1] == 1 && first >= 0 && last < a.length && tile.channel + kChannels <= a.channels &&
         a.input_strides[2] % kWordElements<Element> == 0 && is_word_aligned(corner);
}

// The taps of a block's channels, transposed: taps[k][channel].
template <class Element, class T>
__device__ __forceinline__ void load_taps(const Conv1dArguments<Element>& a, long long channel, T* taps) {
  constexpr int kChannels = kChannelVectors * kWordElements<Element>;
  for (int i = threadIdx.x; i < kChannels * a.taps; i += kConv1dThreads) {
    const int c = i / a.taps, k = i - c * a.taps;
    taps[k * kChannels + c] = channel + c < a.channels ? a.tap(channel + c, k) : T(0);
  }
}

// One thread's vector of channels at its positions. `word_at(channel, position, k)` is the input of the output at
// `position` under tap k.
template <class Element, class WordAt, class TapAt>
__device__ __forceinline__ void convolve_channels(const Conv1dArguments<Element>& a, const ChannelTile& tile, WordAt&& word_at,
                                                  TapAt&& tap_at) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  const long long channel = tile.channel + threadIdx.x % kChannelVectors * kWidth;
  const long long position = tile.position + threadIdx.x / kChannelVectors * kPositions;
  if (channel >= a.channels || position >= a.output_length) return;
  const int last = static_cast<int>(min_of<long long>(kWidth, a.channels - channel));

  T sums[kPositions * kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const T bias = i < last ? a.bias_of(channel + i) : T(0);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) sums[j * kWidth + i] = bias;
  }
#pragma unroll 2
  for (int k = 0; k < a.taps; ++k) {
    Word words[kPositions];
#pragma unroll
    for (int j = 0; j < kPositions; ++j) words[j] = word_at(channel, position + j, k);
    T weights[kWidth];
    tap_at(k, weights);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      T values[kWidth];
      unpack<Element>(words[j], values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[j * kWidth + i] = multiply_add(weights[i], values[i], sums[j * kWidth + i]);
    }
  }
  const InterpretedChain<T, 3> chain{a.post};
  chain.template apply<kWidth, kPositions>(sums, [&](int operand, int j) {
    const long long* const strides = a.post.operands[operand].strides;
    return Place{tile.batch * strides[0] + channel * strides[1] + (position + j) * strides[2], strides[1], 0,
                 position + j < a.output_length ? last : 0};
  });
  with_element_type(a.output_dtype, [&](auto* tag) {
    using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    Out* const to = static_cast<Out*>(a.output) + tile.batch * a.output_strides[0] + channel * a.output_strides[1];
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      store_elements<Out, kWidth>(to + (position + j) * a.output_strides[2], a.output_strides[1], 0,
                                  position + j < a.output_length ? last : 0, sums + j * kWidth);
    }
  });
}

template <class Element, bool HasPre>
__global__ void __launch_bounds__(kConv1dThreads, HasPre ? 4 : 5)
    direct_channels_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kChannels = kChannelVectors * kWidth;
  extern __shared__ Word shared[];
  T* const taps = reinterpret_cast<T*>(shared);
  const ChannelTile tile = channel_tile<kWidth>(a, blockIdx.x);
  load_taps(a, tile.channel, taps);
  __syncthreads();
  const bool interior = is_interior(a, tile);
  const int lane = threadIdx.x % kChannelVectors * kWidth;
  const Element* const origin =
      a.input + tile.batch * a.input_strides[0] + (tile.channel + lane) * a.input_strides[1] - a.padding * a.input_strides[2];
  const long long across_positions = a.stride * a.input_strides[2], across_taps = a.dilation * a.input_strides[2];
  convolve_channels(
      a, tile,
      [&](long long channel, long long position, int k) {
        const Element* const address = origin + position * across_positions + k * across_taps;
        const long long from = position * a.stride - a.padding + k * a.dilation;
        const Word word = interior || is_whole_vector(a, address, channel, from)
                              ? load_word(address)
                              : gather_word(a, tile.batch, channel, from, 1, 0);
        return HasPre ? apply_pre(a, word, tile.batch, channel, from, 1, 0) : word;
      },
      [&](int k, T* weights) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) weights[i] = taps[k * kChannels + lane + i];
      });
}

template <class Element, class Pipe>
__global__ void __launch_bounds__(kConv1dThreads) staged_channels_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kChannels = kChannelVectors * kWidth;
  extern __shared__ Word shared[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, a.depth, /*shares=*/true);
  const int stage_words = a.stage_words + a.weight_bytes / kWordBytes;

  const auto fetch = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const ChannelTile tile = channel_tile<kWidth>(a, index);
    const long long first = tile.position * a.stride - a.padding;
    for (int w = threadIdx.x; w < a.stage_words; w += kConv1dThreads) {
      const long long channel = tile.channel + w % kChannelVectors * kWidth, position = first + w / kChannelVectors;
      const Element* const address =
          a.input + tile.batch * a.input_strides[0] + channel * a.input_strides[1] + position * a.input_strides[2];
      if (is_whole_vector(a, address, channel, position)) {
        pipe.copy(words + w, address);
      } else {
        words[w] = gather_word(a, tile.batch, channel, position, 1, 0);
      }
    }
    load_taps(a, tile.channel, reinterpret_cast<T*>(words + a.stage_words));
  };

  const auto compute = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const ChannelTile tile = channel_tile<kWidth>(a, index);
    if (a.pre.count > 0) {
      const long long first = tile.position * a.stride - a.padding;
      for (int w = threadIdx.x; w < a.stage_words; w += kConv1dThreads) {
        words[w] =
            apply_pre(a, words[w], tile.batch, tile.channel + w % kChannelVectors * kWidth, first + w / kChannelVectors, 1, 0);
      }
      __syncthreads();
    }
    const T* const taps = reinterpret_cast<const T*>(words + a.stage_words);
    const int vector = threadIdx.x % kChannelVectors;
    convolve_channels(
        a, tile,
        [&](long long, long long position, int k) {
          const long long local = (position - tile.position) * a.stride + k * a.dilation;
          return words[local * kChannelVectors + vector];
        },
        [&](int k, T* weights) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) weights[i] = taps[k * kChannels + vector * kWidth + i];
        });
  };

  run_ring(pipe, a.depth, blockIdx.x, a.tiles, gridDim.x, fetch, compute);
}

}  // namespace sluice
