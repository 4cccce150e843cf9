// The input into rows of channels (lay.h), a tile of 512 pieces a block:
//
//   64 positions x 64 channels, or more positions of fewer channels
//     |  positions lie side by side, or nothing does: lanes along positions, a thread loads the eight of a piece
//     |  channels do, but do not begin at 16 bytes:   lanes along channels, an element each
//     |  channels do, as whole words:                 loaded where they are stored
//   shared memory: pieces, those of a row changing places so that eight neighbours lie in different banks
//     |  the chain
//   rows of the result, 16 bytes a thread
#pragma once

#include <cstdint>

#include "kernels/common/edges.cuh"
#include "kernels/common/fast_divide.h"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/dense/lay.h"
#include "kernels/stages/epilogue.cuh"
#include "kernels/stages/interpreter.cuh"
#include "kernels/stages/linked_chain.cuh"

namespace sluice {

inline constexpr int kLayThreads = 256, kLayPieces = 512, kMostLayPieces = 8;

struct LayArguments : LayParams {
  int shift;  // a tile's row has 2^shift pieces
  FastDivisor by_channel_tiles, by_position_tiles;
  ChainArguments<float, 3> pre;

  __device__ __forceinline__ int pieces() const { return 1 << shift; }
  __device__ __forceinline__ int positions() const { return kLayPieces >> shift; }
  // Of a piece in shared memory, counted in pieces.
  __device__ __forceinline__ int place(int row, int piece) const {
    return (row << shift) + (piece ^ (((row << shift) / kMostLayPieces) & (pieces() - 1)));
  }
};

struct LayTile {
  long long batch, position, channel;  // the first ones
};

__device__ __forceinline__ LayTile lay_tile(const LayArguments& a) {
  const long long upper = a.by_channel_tiles.quotient(blockIdx.x);
  const long long batch = a.by_position_tiles.quotient(upper);
  return {batch, (upper - batch * static_cast<long long>(a.by_position_tiles.divisor)) * a.positions(),
          (blockIdx.x - upper * static_cast<long long>(a.by_channel_tiles.divisor)) * a.pieces() * kPieceElements};
}

// The chain on the first `count` of eight channels of a position; the others stay zero.
template <class Pre, class Element>
__device__ __forceinline__ Word with_chain(const LayArguments& a, const LayTile& tile, int row, int channel, int count,
                                           const Word& word) {
  const auto place_of = [&](const long long* strides, int) {
    const long long offset =
        tile.batch * strides[0] + (tile.channel + channel) * strides[1] + (tile.position + row) * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(kPieceElements, count)};
  };
  float values[kPieceElements];
  unpack<Element>(word, values);
  run_chain<Pre, kPieceElements, 1>(a.pre, place_of, values);
  const Word changed = pack<Element>(values);
  return count >= kPieceElements ? changed
                                 : replace_elements<Element>(word, changed, [count](int i) { return i < count; });
}

// Without a chain half types are moved as the bits that they are.
template <class Pre, class Element, LayFrom From>
__device__ __forceinline__ void lay(const LayArguments& a) {
  extern __shared__ __align__(kWordBytes) char memory[];
  auto* const staged = reinterpret_cast<std::uint16_t*>(memory);
  const LayTile tile = lay_tile(a);
  const int thread = static_cast<int>(threadIdx.x);
  const int positions = static_cast<int>(min_of<long long>(a.positions(), a.length - tile.position));
  const int channels = static_cast<int>(min_of<long long>(a.pieces() * kPieceElements, a.channels - tile.channel));
  const auto* const from = a.input.as<const std::uint16_t>() + tile.batch * a.input.strides[0] +
                           tile.channel * a.input.strides[1] + tile.position * a.input.strides[2];
  if constexpr (From == LayFrom::channels) {
    const int width = a.pieces() * kPieceElements, channel = thread & (width - 1);
#pragma unroll 16
    for (int i = thread; i < kLayPieces * kPieceElements; i += kLayThreads) {
      const int row = i >> (a.shift + 3);
      const bool exists = row < positions && channel < channels;
      staged[a.place(row, channel / kPieceElements) * kPieceElements + channel % kPieceElements] =
          exists ? from[row * a.input.strides[2] + channel] : 0;
    }
  } else if constexpr (From == LayFrom::positions) {
    const int warp = thread / 32, piece = warp & (a.pieces() - 1), channel = piece * kPieceElements;
    const int first_row = (warp >> a.shift) * 32 + thread % 32;
    constexpr int kRows = kLayPieces / kLayThreads;
    std::uint16_t values[kRows][kPieceElements];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first_row + r * (a.positions() / kRows);
      const auto* const at = from + channel * a.input.strides[1] + row * a.input.strides[2];
#pragma unroll
      for (int j = 0; j < kPieceElements; ++j) {
        values[r][j] = row < positions && channel + j < channels ? at[j * a.input.strides[1]] : 0;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Word word;
      __builtin_memcpy(&word, values[r], sizeof(word));
      store_word(staged + a.place(first_row + r * (a.positions() / kRows), piece) * kPieceElements, word);
    }
  }
  if constexpr (From != LayFrom::words) __syncthreads();
  const long long pitch = LayParams::pitch(a.channels);
  auto* const to = static_cast<std::uint16_t*>(a.laid) + (tile.batch * a.length + tile.position) * pitch + tile.channel;
#pragma unroll
  for (int i = thread; i < kLayPieces; i += kLayThreads) {
    const int row = i >> a.shift, piece = i & (a.pieces() - 1), channel = piece * kPieceElements;
    if (row >= positions || channel >= channels) continue;
    Word word = From == LayFrom::words ? load_word(from + row * a.input.strides[2] + channel)
                                       : load_word(staged + a.place(row, piece) * kPieceElements);
    if (!Pre{a.pre}.empty()) word = with_chain<Pre, Element>(a, tile, row, channel, channels - channel, word);
    store_word(to + row * pitch + channel, word);
  }
}

}  // namespace sluice
