// Depthwise conv1d, channels-last: a vector is consecutive channels of one position.
//
// A block covers 8 vectors of channels by 64 positions. A thread has one vector of channels and 4 consecutive
// positions; the taps of the block's channels are in shared memory, one row of channels a tap.
//
//                     channels ->  128 bytes of each position
//   position t     | v0 v1 v2 .. v7 |   threads 0..7   positions 0..3 each
//   position t+4   | v0 v1 v2 .. v7 |   threads 8..15
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/shared/stages/epilogue.cuh"

namespace sluice {

// A block's tile: 8 vectors of channels by 64 outputs.
struct ChannelTile {
  long long batch, channel, position;
};

template <int Width, class Element>
__device__ __forceinline__ ChannelTile channel_tile(const Conv1dArguments<Element>& a, long long tile) {
  // Channels first: adjacent blocks read adjacent memory.
  const long long upper = a.by_across.quotient(tile);
  const long long batch = a.by_along.quotient(upper);
  return {batch, (tile - upper * a.by_across.divisor) * (kChannelVectors * Width),
          (upper - batch * a.by_along.divisor) * kTilePositions};
}

template <class Element>
__device__ __forceinline__ bool is_whole_vector(const Conv1dArguments<Element>& a, const Element* address,
                                                long long channel, long long position) {
  return a.input.strides[1] == 1 && position >= 0 && position < a.length &&
         channel + kWordElements<Element> <= a.channels && is_word_aligned(address);
}

// Every input and every vector of the tile is whole: no load needs a check.
template <class Element>
__device__ __forceinline__ bool is_interior(const Conv1dArguments<Element>& a, const ChannelTile& tile) {
  constexpr int kChannels = kChannelVectors * kWordElements<Element>;
  const long long first = tile.position * a.stride - a.padding;
  const long long last = first + (kTilePositions - 1) * a.stride + (a.taps - 1) * a.dilation;
  const Element* const corner = a.input.template as<const Element>() + tile.batch * a.input.strides[0] + tile.channel +
                                first * a.input.strides[2];
  return a.input.strides[1] == 1 && first >= 0 && last < a.length && tile.channel + kChannels <= a.channels &&
         a.input.strides[2] % kWordElements<Element> == 0 && is_word_aligned(corner);
}

// The taps of a block's channels, transposed: taps[k][channel]. By `threads` threads.
template <class Element, class T>
__device__ __forceinline__ void load_taps(const Conv1dArguments<Element>& a, long long channel, T* taps, int thread,
                                          int threads) {
  constexpr int kChannels = kChannelVectors * kWordElements<Element>;
  for (int i = thread; i < kChannels * a.taps; i += threads) {
    const int c = i / a.taps, k = i - c * a.taps;
    taps[k * kChannels + c] = channel + c < a.channels ? a.tap(channel + c, k) : T(0);
  }
}

// A thread's work in a tile: a vector of channels at kPositions positions.
template <class Element>
struct ChannelVector {
  long long batch, channel, position;
  int lane;  // index of the first channel in the tile's channels
  int last;  // channels of the vector that exist

  __device__ ChannelVector(const Conv1dArguments<Element>& a, const ChannelTile& tile) : batch(tile.batch) {
    constexpr int kWidth = kWordElements<Element>;
    lane = threadIdx.x % kChannelVectors * kWidth;
    channel = tile.channel + lane;
    position = tile.position + threadIdx.x / kChannelVectors * kPositions;
    const long long left = a.channels - channel;
    last = left < kWidth ? static_cast<int>(max_of<long long>(left, 0)) : kWidth;
  }
  __device__ bool exists(const Conv1dArguments<Element>& a) const { return last > 0 && position < a.output_length; }
};

// Initialises the sums with biases.
template <class Element, class T>
__device__ __forceinline__ void start_sums(const Conv1dArguments<Element>& a, const ChannelVector<Element>& v,
                                           T* sums) {
  constexpr int kWidth = kWordElements<Element>;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const T bias = i < v.last ? a.bias_of(v.channel + i) : T(0);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) sums[j * kWidth + i] = bias;
  }
}

// The taps of a vector's channels, from the block's transposed taps.
template <class Element, class T>
__device__ __forceinline__ void read_taps(const T* taps, int k, int lane, T* weights) {
  constexpr int kWidth = kWordElements<Element>, kChannels = kChannelVectors * kWidth;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) weights[i] = taps[k * kChannels + lane + i];
}

// sums += taps on inputs, for any stride and dilation. `word_at(j, k)` is the input of output j under tap k.
template <class Element, class T, class WordAt>
__device__ __forceinline__ void add_products(const Conv1dArguments<Element>& a, const T* taps, int lane,
                                             WordAt&& word_at, T* sums) {
  constexpr int kWidth = kWordElements<Element>;
#pragma unroll 1
  for (int k = 0; k < a.taps; ++k) {
    Word words[kPositions];
#pragma unroll
    for (int j = 0; j < kPositions; ++j) words[j] = word_at(j, k);
    T weights[kWidth];
    read_taps<Element>(taps, k, lane, weights);
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      T values[kWidth];
      unpack<Element>(words[j], values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[j * kWidth + i] = multiply_add(weights[i], values[i], sums[j * kWidth + i]);
    }
  }
}

// Applies `post` and stores.
template <class Post, class Element, class T>
__device__ __forceinline__ void finish_sums(const Conv1dArguments<Element>& a, const ChannelVector<Element>& v,
                                            T (&sums)[kPositions * kWordElements<Element>]) {
  constexpr int kWidth = kWordElements<Element>;
  const auto place_of = [&](const long long* strides, int j) {
    const long long offset = v.batch * strides[0] + v.channel * strides[1] + (v.position + j) * strides[2];
    return Place{
        .offset = offset, .stride = strides[1], .first = 0, .last = v.position + j < a.output_length ? v.last : 0};
  };
  finish_slices<Post, kWidth, kPositions>(a.post, a.output, a.output_type(), place_of, sums);
}

template <class Chains, class Element>
__device__ __forceinline__ void direct_channels(const DirectArguments<Element>& a) {
  using T = Compute<Element>;
  using Pre = typename Chains::Pre;
  constexpr int kWidth = kWordElements<Element>;
  extern __shared__ Word shared[];
  T* const taps = reinterpret_cast<T*>(shared);
  const ChannelTile tile = channel_tile<kWidth>(a, blockIdx.x);
  const ChannelVector<Element> v(a, tile);
  const bool interior = is_interior(a, tile);
  const Element* const origin = a.input.template as<const Element>() + v.batch * a.input.strides[0] +
                                v.channel * a.input.strides[1] +
                                (v.position * a.stride - a.padding) * a.input.strides[2];
  load_taps(a, tile.channel, taps, threadIdx.x, kConv1dThreads);
  __syncthreads();
  if (!v.exists(a)) return;
  T sums[kPositions * kWidth];
  start_sums(a, v, sums);
  add_products(
      a, taps, v.lane,
      [&](int j, int k) {
        const long long step = j * a.stride + k * a.dilation, from = v.position * a.stride - a.padding + step;
        const Element* const address = origin + step * a.input.strides[2];
        const Word word = interior || is_whole_vector(a, address, v.channel, from)
                              ? load_word(address)
                              : gather_word(a, v.batch, v.channel, from, 1, 0);
        return Pre{a.pre}.empty() ? word : apply_pre<Pre>(a, word, v.batch, v.channel, from, 1, 0);
      },
      sums);
  finish_sums<typename Chains::Post>(a, v, sums);
}

template <class Element>
__global__ void __launch_bounds__(kConv1dThreads, kConv1dResidentBlocks)
    direct_channels_kernel(const __grid_constant__ DirectArguments<Element> a) {
  direct_channels<InterpretedChains<Element, true>>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::direct_channels, Element> {
  static Kernel<DirectArguments<Element>> of(const Conv1dParams&) { return direct_channels_kernel<Element>; }
};

}  // namespace sluice
