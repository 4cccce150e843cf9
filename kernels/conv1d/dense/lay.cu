// The input into rows of channels (lay.h), a tile of 512 pieces a block:
//
//   64 positions x 64 channels, or more positions of fewer channels
//     |  positions lie side by side, or nothing does: lanes along positions, a thread loads the eight of a piece
//     |  channels do, but do not begin at 16 bytes:   lanes along channels, an element each
//   shared memory: pieces, those of a row changing places so that eight neighbours lie in different banks
//     |
//   rows of the result, 16 bytes a thread
#include <cstdint>

#include "kernels/common/fast_divide.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/dense/launch.h"

namespace sluice {
namespace {

constexpr int kThreads = 256, kTilePieces = 512, kMostPieces = 8;

struct LayArguments : LayParams {
  int shift;  // a tile's row has 2^shift pieces
  FastDivisor by_channel_tiles, by_position_tiles;

  __device__ __forceinline__ int pieces() const { return 1 << shift; }
  __device__ __forceinline__ int positions() const { return kTilePieces >> shift; }
  // Of a piece in shared memory, counted in pieces.
  __device__ __forceinline__ int place(int row, int piece) const {
    return (row << shift) + (piece ^ (((row << shift) / kMostPieces) & (pieces() - 1)));
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

// Half types are moved as the bits that they are.
template <bool AlongChannels>
__global__ void __launch_bounds__(kThreads) lay_kernel(const __grid_constant__ LayArguments a) {
  extern __shared__ __align__(kWordBytes) char memory[];
  auto* const staged = reinterpret_cast<std::uint16_t*>(memory);
  const LayTile tile = lay_tile(a);
  const int thread = static_cast<int>(threadIdx.x);
  const int positions = static_cast<int>(min_of<long long>(a.positions(), a.length - tile.position));
  const int channels = static_cast<int>(min_of<long long>(a.pieces() * kPieceElements, a.channels - tile.channel));
  const auto* const from = a.input.as<const std::uint16_t>() + tile.batch * a.input.strides[0] +
                           tile.channel * a.input.strides[1] + tile.position * a.input.strides[2];
  if constexpr (AlongChannels) {
    const int width = a.pieces() * kPieceElements, channel = thread & (width - 1);
#pragma unroll 16
    for (int i = thread; i < kTilePieces * kPieceElements; i += kThreads) {
      const int row = i >> (a.shift + 3);
      const bool exists = row < positions && channel < channels;
      staged[a.place(row, channel / kPieceElements) * kPieceElements + channel % kPieceElements] =
          exists ? from[row * a.input.strides[2] + channel] : 0;
    }
  } else {
    const int warp = thread / 32, piece = warp & (a.pieces() - 1), channel = piece * kPieceElements;
    const int first_row = (warp >> a.shift) * 32 + thread % 32;
    constexpr int kRows = kTilePieces / kThreads;
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
  __syncthreads();
  const long long pitch = LayParams::pitch(a.channels);
  auto* const to = static_cast<std::uint16_t*>(a.laid) + (tile.batch * a.length + tile.position) * pitch + tile.channel;
#pragma unroll
  for (int i = thread; i < kTilePieces; i += kThreads) {
    const int row = i >> a.shift, piece = i & (a.pieces() - 1);
    if (row < positions && piece * kPieceElements < channels) {
      store_word(to + row * pitch + piece * kPieceElements, load_word(staged + a.place(row, piece) * kPieceElements));
    }
  }
}

}  // namespace

cudaError_t launch_lay(const LayParams& params, cudaStream_t stream) {
  LayArguments a{params};
  while (a.shift < 3 && LayParams::pitch(params.channels) > (kPieceElements << a.shift)) ++a.shift;
  const long long channel_tiles = ceil_div<long long>(params.channels, kPieceElements << a.shift);
  const long long position_tiles = ceil_div<long long>(params.length, kTilePieces >> a.shift);
  a.by_channel_tiles = FastDivisor(channel_tiles);
  a.by_position_tiles = FastDivisor(position_tiles);
  const bool along_channels = params.input.strides[1] == 1 && params.input.strides[2] != 1;
  return launch_kernel(along_channels ? lay_kernel<true> : lay_kernel<false>,
                       params.batch * position_tiles * channel_tiles, kThreads, kTilePieces * kWordBytes, stream, a);
}

}  // namespace sluice
