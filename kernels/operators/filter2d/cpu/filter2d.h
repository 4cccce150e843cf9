// filter2d on the CPU: its tiles, and their computation.
#pragma once

#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// How vectors run over a tile, which is a rectangle of one plane, or of the planes of some channels:
//
//   rows       along the rows of a plane                                       rows.h
//   channels   across channels, in a copy of the tile                          channels.h
//   pixels     across contiguous channels, in the image itself                 pixels.h
//   planes     across channels, in a transposed copy of narrow planes          planes.h
enum class Filter2dCpuWay { rows, channels, pixels, planes };

// Channels of a tile of planes.
inline constexpr int kPlaneChannels = 16;
// Planes narrower than this are transposed: from here on, vectors along their rows are as fast.
inline constexpr long long kNarrowPlane = 64;

// Tiles do not depend on the number of threads.
struct Filter2dCpuTiles {
  Filter2dCpuWay way;
  long long columns, rows, channels;  // sizes of a tile, at most
  long long tiles_across, tiles_down, channel_tiles;
  long long count;  // tiles
  long long grain;  // tiles per thread at least
};

Filter2dCpuTiles tiles_on_cpu(const Filter2dParams& params);

// Tiles first .. last - 1. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void filter2d_cpu(const Filter2dParams& params, const Filter2dCpuTiles& tiles, long long first, long long last);

}  // namespace sluice
