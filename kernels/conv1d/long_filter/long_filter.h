// The method for depthwise filters of half types with more than a few taps: rows against a Toeplitz matrix of the taps,
// on tensor cores. How it does is drawn in long_filter_kernel.cuh.
#pragma once

#include <string>

#include "kernels/common/device_properties.h"

namespace sluice {

// In rows: the taps of a lane are in registers, or in shared memory. Or channels last.
enum class LongFilterKernel : int { few_steps, many_steps, channels };

struct LongFilterPlan {
  LongFilterKernel which = LongFilterKernel::few_steps;
  int steps = 0;                   // tensor-core products for each tile, of kStepPositions positions each
  int team = 1;                    // warps that share a ring and its taps
  int segment = 0;                 // outputs of a row that a team takes at a time: whole groups of tiles
  int stage_words = 0;             // 16-byte words of shared memory for the input of one
  long long segments_per_row = 0;  // a row is the outputs of one channel
  long long segments = 0;          // of the result
  // That follow each other are a team's; the first teams have one more.
  long long segments_per_team = 0;
  long long longer_teams = 0;
  // Channels last: a segment is a block's, of the positions of some channels; the block takes every `grid`-th.
  long long channel_blocks = 1;  // that a position's channels are
  int stage_positions = 0;       // of a segment's input
  bool whole_words = false;      // a position's channels begin at a word of the input
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether a depthwise problem is one that the kernel computes, and faster than the depthwise method's.
bool suits_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits. `threads` is 0 where the taps have no room in shared memory.
Conv1dPlan plan_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

// Instructions that warps issue for all of it, about (tap_work.h).
double long_filter_slots(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const LongFilterPlan& plan);

}  // namespace sluice
