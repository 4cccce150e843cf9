#include "kernels/common/int_math.h"
#include "kernels/filter2d/filter2d_cpu.h"

namespace sluice {
namespace {

// Fewer channels, or columns, leave most of a vector empty.
constexpr long long kFewest = 16;
constexpr long long kThreadWork = 64 * 1024;  // products and elements that are worth a thread

}  // namespace

Filter2dCpuTiles tiles_on_cpu(const Filter2dParams& params) {
  Filter2dCpuTiles tiles{};
  const bool side_by_side = params.output.strides[1] == 1 && params.channels > 1;
  tiles.across_channels = params.channels >= kFewest && (side_by_side || params.output_width < kFewest / 4);
  // The rows of a tile and of its border stay in the L1 cache for few taps, in the L2 cache for many; a tile is as
  // large as its border at least, or that would be most of what is loaded.
  tiles.channels = tiles.across_channels ? min_of<long long>(params.channels, 64) : 1;
  tiles.columns =
      min_of(params.output_width, max_of<long long>(tiles.across_channels ? 32 : 2048, params.kernel_width - 1));
  // Narrow ones are the taller for it.
  const long long rows = tiles.across_channels ? 8 : max_of<long long>(16, 8192 / tiles.columns);
  tiles.rows = min_of(params.output_height, max_of<long long>(rows, params.kernel_height - 1));
  tiles.tiles_across = ceil_div(params.output_width, tiles.columns);
  tiles.tiles_down = ceil_div(params.output_height, tiles.rows);
  tiles.channel_tiles = ceil_div(params.channels, tiles.channels);
  tiles.count = params.batch * tiles.channel_tiles * tiles.tiles_across * tiles.tiles_down;
  const long long taps = params.row_taps.exists() ? params.kernel_height + params.kernel_width
                                                  : static_cast<long long>(params.kernel_height) * params.kernel_width;
  tiles.grain = max_of<long long>(1, kThreadWork / (tiles.channels * tiles.columns * tiles.rows * (taps + 4)));
  return tiles;
}

}  // namespace sluice
