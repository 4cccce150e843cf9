// The depthwise method on the CPU: its tiles, and their computation.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// A tile is some positions of one row, or of some contiguous channels: its vectors run along the row, or across the
// channels. Tiles do not depend on the number of threads.
struct DepthwiseTiles {
  bool across_channels;
  long long positions, channels;  // sizes of a tile at most; along a row: the outputs of one input channel
  long long position_tiles, channel_tiles;
  long long count;  // tiles
  long long grain;  // tiles per thread at least
};

DepthwiseTiles tiles_on_cpu(const Conv1dParams& params);

// Tiles first .. last - 1. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void depthwise_cpu(const Conv1dParams& params, const DepthwiseTiles& tiles, long long first, long long last);

}  // namespace sluice
