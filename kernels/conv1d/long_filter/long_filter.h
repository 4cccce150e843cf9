// The method for depthwise filters of half types with more than a few taps: rows against a Toeplitz matrix of the taps,
// on tensor cores. How it does is drawn in long_filter_kernel.cuh.
#pragma once

#include <string>

#include "kernels/common/device_properties.h"

namespace sluice {

struct LongFilterPlan {
  int steps = 0;                    // tensor-core products for each tile, of kStepPositions positions each
  int segment = 0;                  // outputs of a row that a warp takes at a time: whole groups of tiles
  int stage_words = 0;              // 16-byte words of shared memory for the input of one
  long long segments_per_row = 0;   // a row is the outputs of one channel
  long long segments = 0;           // of the result
  long long segments_per_warp = 0;  // that follow each other
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether a depthwise problem is one that the kernel computes, and faster than the depthwise method's.
bool suits_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits. `threads` is 0 where the taps have no room in shared memory.
Conv1dPlan plan_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const LongFilterPlan& plan);

}  // namespace sluice
