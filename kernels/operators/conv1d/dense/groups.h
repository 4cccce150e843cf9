// Groups of channels and the tiles that they are cut into: a tile of output channels is in one group.
//
//   group        0                       1
//   tiles        0       1               2       3             by_tiles: 2
//   channels     0 .. 63 64 .. 95        96 ..   160 .. 191    96 of a group, 64 of a tile
#pragma once

#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

struct DenseGroups {
  int inputs = 0, channels = 0;  // input channels and output channels of a group
  FastDivisor by_tiles;          // divides by a group's tiles of output channels

  SLUICE_HOST_DEVICE int group_of(int channel_tile) const {
    return static_cast<int>(by_tiles.quotient_of_31_bits(static_cast<std::uint32_t>(channel_tile)));
  }
  SLUICE_HOST_DEVICE int first_channel(int channel_tile, int tile_channels) const {
    const int group = group_of(channel_tile);
    return group * channels + (channel_tile - group * static_cast<int>(by_tiles.divisor)) * tile_channels;
  }
  SLUICE_HOST_DEVICE int first_input(int group) const { return group * inputs; }
  SLUICE_HOST_DEVICE int end(int group) const { return (group + 1) * channels; }
  // End of the packed weight's rows; with several groups each has a multiple of kSwizzleRows.
  SLUICE_HOST_DEVICE int packed_end(int group) const { return round_up(end(group), kSwizzleRows); }
};

inline DenseGroups dense_groups(long long groups, long long input_channels, long long channels, int tile_channels) {
  return {.inputs = static_cast<int>(input_channels / groups),
          .channels = static_cast<int>(channels / groups),
          .by_tiles = FastDivisor(ceil_div<long long>(channels / groups, tile_channels))};
}

}  // namespace sluice
