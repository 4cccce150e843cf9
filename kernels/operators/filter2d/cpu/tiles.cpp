#include "kernels/operators/filter2d/cpu/filter2d.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

// Fewer channels, or columns, leave most of a vector empty.
constexpr long long kFewest = 16;
// Taps of a window read directly from the image: longer sums are split.
constexpr long long kMostTaps = 256;
constexpr long long kThreadWork = 64 * 1024;  // products and elements per thread at least

long long taps_of(const Filter2dParams& params) {
  return static_cast<long long>(params.kernel_height) * params.kernel_width;
}

// Whether windows are summed from images without `pre`, with default sampling.
bool is_plain(const Filter2dParams& params) {
  return params.pre.empty() && !params.row_taps.exists() && taps_of(params) <= kMostTaps && params.sampling.are_plain();
}

bool reads_pixels(const Filter2dParams& params) {
  const long long pixel = params.image.strides[3];
  const bool packed = pixel == params.channels && params.output.strides[3] == params.channels;
  return is_plain(params) && params.image.strides[1] == 1 && (params.channels >= kFewest || packed);
}

bool transposes_planes(const Filter2dParams& params) {
  const auto is_flat = [](const Operand<4>& planes, long long width) {
    return planes.strides[3] == 1 && planes.strides[2] == width;
  };
  return is_plain(params) && params.post.operands == 0 && params.channels >= kFewest &&
         params.output_width < kNarrowPlane && is_flat(params.image, params.width) &&
         is_flat(params.output, params.output_width);
}

Filter2dCpuWay way_of(const Filter2dParams& params) {
  const bool is_channels_last = params.output.strides[1] == 1 && params.channels > 1;
  if (is_channels_last && reads_pixels(params)) return Filter2dCpuWay::pixels;
  if (!is_channels_last && transposes_planes(params)) return Filter2dCpuWay::planes;
  if (params.channels >= kFewest && (is_channels_last || params.output_width < kFewest / 4)) {
    return Filter2dCpuWay::channels;
  }
  return Filter2dCpuWay::rows;
}

// Channels of a tile of pixels: a number that leaves at least a vector of them to the last tile, too.
long long channels_of_pixels(long long channels) {
  for (long long step : {64, 48, 80, 112}) {
    if (channels % step == 0 || channels % step >= kFewest) return min_of(channels, step);
  }
  return channels;
}

}  // namespace

Filter2dCpuTiles tiles_on_cpu(const Filter2dParams& params) {
  Filter2dCpuTiles tiles{};
  tiles.way = way_of(params);
  // The rows of a tile and of its border stay in the L1 cache for few taps, in the L2 cache for many; a tile is at
  // least as large as its border, or most loads would be of the border.
  const Filter2dSampling& sampling = params.sampling;
  const long long border_columns = static_cast<long long>(sampling.dilation_across) * (params.kernel_width - 1),
                  border_rows = static_cast<long long>(sampling.dilation_down) * (params.kernel_height - 1);
  long long columns = max_of<long long>(32, border_columns), rows = 8;
  switch (tiles.way) {
    case Filter2dCpuWay::rows:
      tiles.channels = 1;
      columns = max_of<long long>(2048, border_columns);
      // Narrow tiles are taller.
      rows = max_of<long long>(16, 8192 / min_of(params.output_width, columns));
      break;
    case Filter2dCpuWay::channels: tiles.channels = 64; break;
    case Filter2dCpuWay::pixels:
      tiles.channels = channels_of_pixels(params.channels);
      columns = max_of<long long>(32, 4096 / tiles.channels);
      // Narrow tiles are taller: columns at the sides are summed down the tile.
      rows = max_of<long long>(rows, 8192 / tiles.channels / min_of(params.output_width, columns));
      break;
    case Filter2dCpuWay::planes:
      tiles.channels = kPlaneChannels;
      columns = params.output_width;
      rows = max_of<long long>(256 / params.output_width, 2 * (params.kernel_height - 1));
      break;
  }
  tiles.channels = min_of(params.channels, tiles.channels);
  tiles.columns = min_of(params.output_width, columns);
  tiles.rows = min_of(params.output_height, max_of<long long>(rows, border_rows));
  // Strided windows are fewer for the same pixels.
  tiles.columns = max_of<long long>(1, tiles.columns / sampling.stride_across);
  tiles.rows = max_of<long long>(1, tiles.rows / sampling.stride_down);
  tiles.tiles_across = ceil_div(params.output_width, tiles.columns);
  tiles.tiles_down = ceil_div(params.output_height, tiles.rows);
  tiles.channel_tiles = ceil_div(params.channels, tiles.channels);
  tiles.count = params.batch * tiles.channel_tiles * tiles.tiles_across * tiles.tiles_down;
  const long long taps = params.row_taps.exists() ? params.kernel_height + params.kernel_width : taps_of(params);
  tiles.grain = max_of<long long>(1, kThreadWork / (tiles.channels * tiles.columns * tiles.rows * (taps + 4)));
  return tiles;
}

}  // namespace sluice
