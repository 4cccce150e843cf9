// Rows of channels into rows of positions (to_channels_first.h), a tile of 16 KiB a block:
//
//   64 channels, or fewer, by as many positions as fit
//     |  lanes along channels, 16 bytes each
//   shared memory: a row a position, padded by an element or two, so that a channel's elements are in different banks
//     |  lanes along positions, an element each
//   rows of the result
#include <cstdint>

#include "kernels/common/fast_divide.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv_transpose1d/launch.h"

namespace sluice {
namespace {

constexpr int kThreads = 256, kTileBytes = 16 * 1024, kMostShift = 6;
// Elements of a word and of a tile, as powers of two.
template <class Bits>
inline constexpr int kWordShift = sizeof(Bits) == 2   ? 3
                                  : sizeof(Bits) == 4 ? 2
                                                      : 1;
template <class Bits>
inline constexpr int kTileShift = 10 + kWordShift<Bits>;
static_assert(kTileBytes == kWordBytes << 10);

struct ToChannelsFirstArguments : ToChannelsFirstParams {
  int shift;  // a tile has 2^shift channels
  FastDivisor by_channel_tiles, by_position_tiles;

  SLUICE_HOST_DEVICE int tile_channels() const { return 1 << shift; }
};

// Shared-memory bytes from a position's row to the next one.
template <class Bits>
SLUICE_HOST_DEVICE int row_bytes(int shift) {
  return (static_cast<int>(sizeof(Bits)) << shift) + (sizeof(Bits) == 8 ? 8 : 4);
}
template <class Bits>
SLUICE_HOST_DEVICE int tile_positions(int shift) {
  return 1 << (kTileShift<Bits> - shift);
}

// Elements are copied as bits.
template <class Bits>
__global__ void __launch_bounds__(kThreads)
    to_channels_first_kernel(const __grid_constant__ ToChannelsFirstArguments a) {
  extern __shared__ __align__(kWordBytes) char memory[];
  constexpr int kElements = kWordBytes / static_cast<int>(sizeof(Bits));
  const long long upper = a.by_channel_tiles.quotient(blockIdx.x), batch = a.by_position_tiles.quotient(upper);
  const int tile_length = tile_positions<Bits>(a.shift), pitch = row_bytes<Bits>(a.shift);
  const long long first_channel =
      (blockIdx.x - upper * static_cast<long long>(a.by_channel_tiles.divisor)) * a.tile_channels();
  const long long first_position = (upper - batch * static_cast<long long>(a.by_position_tiles.divisor)) * tile_length;
  const int channels = static_cast<int>(min_of<long long>(a.tile_channels(), a.channels - first_channel));
  const int positions = static_cast<int>(min_of<long long>(tile_length, a.length - first_position));
  const int thread = static_cast<int>(threadIdx.x);
  {
    const long long row_pitch = ToChannelsFirstParams::pitch(a.channels);
    const auto* const from =
        static_cast<const Bits*>(a.rows) + (batch * a.length + first_position) * row_pitch + first_channel;
    const int words_shift = a.shift - kWordShift<Bits>;  // of a row's words
    constexpr int kWords = kTileBytes / kWordBytes / kThreads;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int number = i * kThreads + thread, row = number >> words_shift;
      const int channel = (number & ((1 << words_shift) - 1)) * kElements;
      const Bits* const at = from + row * row_pitch + channel;
      Word word{};
      if (row < positions && channel + kElements <= channels) {
        word = load_word(at);
      } else if (row < positions) {
        Bits elements[kElements] = {};
        for (int j = 0; j < kElements; ++j) {
          if (channel + j < channels) elements[j] = at[j];
        }
        __builtin_memcpy(&word, elements, sizeof(word));
      }
      auto* const to =
          reinterpret_cast<std::uint32_t*>(memory + row * pitch + channel * static_cast<int>(sizeof(Bits)));
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) to[lane] = word.lanes[lane];
    }
  }
  __syncthreads();
  const long long* const strides = a.output.strides;
  auto* const to = a.output.as<Bits>() + batch * strides[0] + first_channel * strides[1] + first_position * strides[2];
#pragma unroll 8
  for (int i = thread; i < 1 << kTileShift<Bits>; i += kThreads) {
    const int channel = i >> (kTileShift<Bits> - a.shift), position = i & (tile_length - 1);
    if (channel < channels && position < positions) {
      to[channel * strides[1] + position * strides[2]] =
          *reinterpret_cast<const Bits*>(memory + position * pitch + channel * static_cast<int>(sizeof(Bits)));
    }
  }
}

template <class Bits>
cudaError_t launch_as(ToChannelsFirstArguments a, cudaStream_t stream) {
  a.shift = kWordShift<Bits>;
  while (a.shift < kMostShift && a.tile_channels() < a.channels) ++a.shift;
  const long long channel_tiles = ceil_div<long long>(a.channels, a.tile_channels());
  const long long position_tiles = ceil_div<long long>(a.length, tile_positions<Bits>(a.shift));
  a.by_channel_tiles = FastDivisor(channel_tiles);
  a.by_position_tiles = FastDivisor(position_tiles);
  return launch_kernel(to_channels_first_kernel<Bits>, a.batch * position_tiles * channel_tiles, kThreads,
                       tile_positions<Bits>(a.shift) * row_bytes<Bits>(a.shift), stream, a);
}

}  // namespace

cudaError_t launch_to_channels_first(const ToChannelsFirstParams& params, cudaStream_t stream) {
  switch (size_of(params.output.dtype)) {
    case 2: return launch_as<std::uint16_t>({params}, stream);
    case 4: return launch_as<std::uint32_t>({params}, stream);
    default: return launch_as<std::uint64_t>({params}, stream);
  }
}

}  // namespace sluice
