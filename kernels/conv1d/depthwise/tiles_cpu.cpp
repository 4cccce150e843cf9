#include "kernels/common/int_math.h"
#include "kernels/conv1d/depthwise/depthwise_cpu.h"

namespace sluice {
namespace {

// Sums of a tile, with the input behind them, stay in the L1 cache.
constexpr long long kRowPositions = 2048;
// Fewer channels, or outputs of a row, leave most of a vector empty.
constexpr long long kFewest = 16;
constexpr long long kThreadWork = 64 * 1024;  // products and elements that are worth a thread

}  // namespace

DepthwiseTiles tiles_on_cpu(const Conv1dParams& params) {
  const long long halo = (params.taps - 1) * params.dilation;
  DepthwiseTiles tiles{};
  const bool side_by_side = params.output.strides[1] == 1 && params.channels > 1;
  tiles.across_channels = params.channels >= kFewest && (side_by_side || params.output_length < kFewest / 4);
  if (tiles.across_channels) {
    // Few taps read the input as it lies, and want long runs of it; many read a copy with the tile's channels alone.
    tiles.channels = min_of<long long>(params.channels, params.taps <= 8 ? 512 : 64);
    tiles.positions = min_of(params.output_length, max_of<long long>(64, halo / params.stride));
  } else {
    tiles.channels = params.multiplier;
    // A tile as long as the window at least, or windows would be most of what is loaded.
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
