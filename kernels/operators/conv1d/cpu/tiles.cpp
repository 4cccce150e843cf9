#include "kernels/operators/conv1d/cpu/depthwise.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

// A tile's sums and input stay in the L1 cache.
constexpr long long kRowPositions = 2048;
// Fewer channels, or outputs of a row, leave most of a vector empty.
constexpr long long kFewest = 16;
constexpr long long kThreadWork = 64 * 1024;  // products and elements per thread at least

}  // namespace

DepthwiseTiles tiles_on_cpu(const Conv1dParams& params) {
  const long long halo = (params.taps - 1) * params.dilation;
  DepthwiseTiles tiles{};
  const bool is_channels_last = params.output.strides[1] == 1 && params.channels > 1;
  tiles.across_channels = params.channels >= kFewest && (is_channels_last || params.output_length < kFewest / 4);
  if (tiles.across_channels) {
    // Few taps read the input in place, and want long spans of it; many read a copy with only the tile's channels.
    tiles.channels = min_of<long long>(params.channels, params.taps <= 8 ? 512 : 64);
    tiles.positions = min_of(params.output_length, max_of<long long>(64, halo / params.stride));
  } else {
    tiles.channels = params.multiplier;
    // A tile at least as long as the window, or most loads would be of windows.
    tiles.positions = min_of(params.output_length, max_of(kRowPositions, halo / params.stride));
  }
  tiles.position_tiles = ceil_div(params.output_length, tiles.positions);
  tiles.channel_tiles = ceil_div(params.channels, tiles.channels);
  tiles.count = params.batch * tiles.position_tiles * tiles.channel_tiles;
  const long long work = tiles.positions * tiles.channels * (params.taps + 4);
  tiles.grain = max_of<long long>(1, kThreadWork / work);
  return tiles;
}

}  // namespace sluice
