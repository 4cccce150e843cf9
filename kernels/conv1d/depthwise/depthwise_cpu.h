// The depthwise method on the CPU: what the work is cut into, and the work.
#pragma once

#include "kernels/common/instruction_set.h"
#include "kernels/conv1d/conv1d.h"

namespace sluice {

// A tile is some positions of one row, or of some channels that lie side by side in memory: its vectors run along the
// row, or across the channels. Tiles do not depend on the number of threads.
struct DepthwiseTiles {
  bool across_channels;
  long long positions, channels;  // of a tile at most; along a row: the outputs of one input channel
  long long position_tiles, channel_tiles;
  long long count;  // of tiles
  long long grain;  // tiles that are worth a thread
};

DepthwiseTiles tiles_on_cpu(const Conv1dParams& params);

// Tiles first .. last - 1. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void depthwise_cpu(const Conv1dParams& params, const DepthwiseTiles& tiles, long long first, long long last);

}  // namespace sluice
