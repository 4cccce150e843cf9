// filter2d on the CPU: what the work is cut into, and the work.
#pragma once

#include "kernels/common/instruction_set.h"
#include "kernels/filter2d/filter2d.h"

namespace sluice {

// A tile is a rectangle of one plane, or of the planes of some channels that lie side by side in memory: its vectors
// run along the rows, or across the channels. Tiles do not depend on the number of threads.
struct Filter2dCpuTiles {
  bool across_channels;
  long long columns, rows, channels;  // of a tile at most
  long long tiles_across, tiles_down, channel_tiles;
  long long count;  // of tiles
  long long grain;  // tiles that are worth a thread
};

Filter2dCpuTiles tiles_on_cpu(const Filter2dParams& params);

// Tiles first .. last - 1. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void filter2d_cpu(const Filter2dParams& params, const Filter2dCpuTiles& tiles, long long first, long long last);

}  // namespace sluice
