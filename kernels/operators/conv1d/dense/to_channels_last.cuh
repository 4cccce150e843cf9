// Converts the input to channels-last (to_channels_last.h), a tile of 512 words a block:
//
//   64 positions x 128 bytes of channels, or more positions of fewer channels
//     |  contiguous positions, or nothing:       lanes along positions, a thread loads the elements of a word
//     |  contiguous but unaligned channels:      lanes along channels, an element each
//     |  contiguous channels in aligned words:   loaded by the thread that stores them
//   shared memory: words, swizzled in each row so that eight adjacent words are in different banks
//     |  the chain
//   rows of the result, 16 bytes a thread
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"

namespace sluice {

using LinkedPre = LinkedChain<float, 3, ChainSite::pre>;

inline constexpr int kToChannelsLastThreads = 256, kToChannelsLastWords = 512, kMostToChannelsLastWords = 8;

struct ToChannelsLastArguments : ToChannelsLastParams {
  int shift;  // a tile's row has 2^shift words
  FastDivisor by_channel_tiles, by_position_tiles;
  ChainArguments<float, 3> pre;

  __device__ __forceinline__ int words() const { return 1 << shift; }
  __device__ __forceinline__ int positions() const { return kToChannelsLastWords >> shift; }
  // Index of a word in shared memory.
  __device__ __forceinline__ int index(int row, int word) const {
    return (row << shift) + (word ^ (((row << shift) / kMostToChannelsLastWords) & (words() - 1)));
  }
};

template <class Element>
using BitsOf = std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint32_t>;

struct ToChannelsLastTile {
  long long batch, position, channel;  // indices of the tile's first element
};

template <int Word>
__device__ __forceinline__ ToChannelsLastTile to_channels_last_tile(const ToChannelsLastArguments& a) {
  const long long upper = a.by_channel_tiles.quotient(blockIdx.x);
  const long long batch = a.by_position_tiles.quotient(upper);
  return {batch, (upper - batch * static_cast<long long>(a.by_position_tiles.divisor)) * a.positions(),
          (blockIdx.x - upper * static_cast<long long>(a.by_channel_tiles.divisor)) * a.words() * Word};
}

// Applies the chain to the first `count` channels of a position's word; the others stay zero.
template <class Pre, class Element>
__device__ __forceinline__ Word with_chain(const ToChannelsLastArguments& a, const ToChannelsLastTile& tile, int row,
                                           int channel, int count, const Word& word) {
  constexpr int kElements = kWordElements<Element>;
  const auto place_of = [&](const long long* strides, int) {
    const long long offset =
        tile.batch * strides[0] + (tile.channel + channel) * strides[1] + (tile.position + row) * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(kElements, count)};
  };
  float values[kElements];
  unpack<Element>(word, values);
  run_chain<Pre, kElements, 1>(a.pre, place_of, values);
  const Word changed = pack<Element>(values);
  return count >= kElements ? changed : replace_elements<Element>(word, changed, [count](int i) { return i < count; });
}

// Without a chain elements are copied as bits.
template <class Pre, class Element, ChannelsLastFrom From>
__device__ __forceinline__ void to_channels_last(const ToChannelsLastArguments& a) {
  using Bits = BitsOf<Element>;
  constexpr int kElements = kWordElements<Element>;
  begin_next();
  extern __shared__ __align__(kWordBytes) char memory[];
  auto* const staged = reinterpret_cast<Bits*>(memory);
  const ToChannelsLastTile tile = to_channels_last_tile<kElements>(a);
  const int thread = static_cast<int>(threadIdx.x);
  const int positions = static_cast<int>(min_of<long long>(a.positions(), a.length - tile.position));
  const int channels = static_cast<int>(min_of<long long>(a.words() * kElements, a.channels - tile.channel));
  const auto* const from = a.input.as<const Bits>() + tile.batch * a.input.strides[0] +
                           tile.channel * a.input.strides[1] + tile.position * a.input.strides[2];
  if constexpr (From == ChannelsLastFrom::channels) {
    const int width = a.words() * kElements, channel = thread & (width - 1);
#pragma unroll 16
    for (int i = thread; i < kToChannelsLastWords * kElements; i += kToChannelsLastThreads) {
      const int row = i / kElements >> a.shift;
      const bool exists = row < positions && channel < channels;
      staged[a.index(row, channel / kElements) * kElements + channel % kElements] =
          exists ? from[row * a.input.strides[2] + channel] : 0;
    }
  } else if constexpr (From == ChannelsLastFrom::positions) {
    const int warp = thread / 32, word_index = warp & (a.words() - 1), channel = word_index * kElements;
    const int first_row = (warp >> a.shift) * 32 + thread % 32;
    constexpr int kRows = kToChannelsLastWords / kToChannelsLastThreads;
    Bits values[kRows][kElements];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first_row + r * (a.positions() / kRows);
      const auto* const at = from + channel * a.input.strides[1] + row * a.input.strides[2];
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        values[r][j] = row < positions && channel + j < channels ? at[j * a.input.strides[1]] : 0;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Word word;
      __builtin_memcpy(&word, values[r], sizeof(word));
      store_word(staged + a.index(first_row + r * (a.positions() / kRows), word_index) * kElements, word);
    }
  }
  if constexpr (From != ChannelsLastFrom::words) __syncthreads();
  const long long pitch = ToChannelsLastParams::pitch(kDType<Element>, a.channels);
  auto* const to = static_cast<Bits*>(a.converted) + (tile.batch * a.length + tile.position) * pitch + tile.channel;
#pragma unroll
  for (int i = thread; i < kToChannelsLastWords; i += kToChannelsLastThreads) {
    const int row = i >> a.shift, word_index = i & (a.words() - 1), channel = word_index * kElements;
    if (row >= positions || channel >= channels) continue;
    Word word = From == ChannelsLastFrom::words ? load_word(from + row * a.input.strides[2] + channel)
                                                : load_word(staged + a.index(row, word_index) * kElements);
    if (!Pre{a.pre}.empty()) word = with_chain<Pre, Element>(a, tile, row, channel, channels - channel, word);
    store_word(to + row * pitch + channel, word);
  }
}

}  // namespace sluice
