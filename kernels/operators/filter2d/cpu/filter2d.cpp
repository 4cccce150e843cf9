#include "kernels/operators/filter2d/cpu/filter2d.h"

#include "kernels/operators/filter2d/cpu/channels.h"
#include "kernels/operators/filter2d/cpu/pixels.h"
#include "kernels/operators/filter2d/cpu/planes.h"
#include "kernels/operators/filter2d/cpu/rows.h"

namespace sluice {
namespace {

Tile tile_at(const Filter2dParams& params, const Filter2dCpuTiles& tiles, long long index) {
  const auto take = [&](long long extent, long long step, long long count, long long& first, long long& here) {
    first = index % count * step;
    here = min_of(step, extent - first);
    index /= count;
  };
  Tile tile{};
  take(params.output_width, tiles.columns, tiles.tiles_across, tile.column, tile.columns);
  take(params.output_height, tiles.rows, tiles.tiles_down, tile.row, tile.rows);
  take(params.channels, tiles.channels, tiles.channel_tiles, tile.channel, tile.channels);
  tile.batch = index;
  return tile;
}

}  // namespace

template <>
void filter2d_cpu<kInstructionSet>(const Filter2dParams& params, const Filter2dCpuTiles& tiles, long long first,
                                   long long last) {
  const auto run = [&](auto work) {
    for (long long index = first; index < last; ++index) work.run(tile_at(params, tiles, index));
  };
  if (params.sampling.bytes) {  // only these ways read bytes
    if (tiles.way == Filter2dCpuWay::channels) return run(AcrossChannels<float, Byte>(params));
    return run(AlongRows<float, Byte>(params));
  }
  with_sums_of(params.image.dtype, [&]<class T, class Element>() {
    switch (tiles.way) {
      case Filter2dCpuWay::rows: return run(AlongRows<T, Element>(params));
      case Filter2dCpuWay::channels: return run(AcrossChannels<T, Element>(params));
      case Filter2dCpuWay::pixels: return run(OverPixels<T, Element>(params, tiles.channels));
      case Filter2dCpuWay::planes: return run(OverPlanes<T, Element>(params));
    }
  });
}

}  // namespace sluice
