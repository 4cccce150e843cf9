// The method for depthwise filters of half types with more than a few taps: rows times a Toeplitz matrix of the taps,
// on tensor cores. long_filter.cuh draws it.
#pragma once

#include <string>

#include "kernels/shared/common/device_properties.h"

namespace sluice {

enum class LongFilterKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/long_filter/kernels.def"
};

inline constexpr const char* kLongFilterKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/long_filter/kernels.def"
};
constexpr const char* name_of(LongFilterKernel kernel) { return kLongFilterKernelNames[static_cast<int>(kernel)]; }

struct LongFilterPlan {
  LongFilterKernel which = LongFilterKernel::long_filter;
  int steps = 0;                   // tensor-core products for each tile, of kStepPositions positions each
  int team = 1;                    // warps that share a ring and its taps
  int segment = 0;                 // outputs of a row that a team takes at a time: whole warp tiles
  int stage_words = 0;             // 16-byte words of shared memory for a segment's input
  long long segments_per_row = 0;  // a row is the outputs of one channel
  long long segments = 0;          // segments of the result
  // A team has consecutive segments; the first teams have one more.
  long long segments_per_team = 0;
  long long longer_teams = 0;
  // Channels-last: a segment is positions of some channels, for a block, which takes every `grid`-th.
  long long channel_blocks = 1;  // blocks of a position's channels
  int stage_positions = 0;       // positions of a segment's input
  bool whole_words = false;      // a position's channels begin at an aligned word of the input
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether the kernel can compute a depthwise problem, and faster than the depthwise method.
bool suits_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits_long_filter. `threads` is 0 where the taps do not fit into shared memory.
Conv1dPlan plan_long_filter(const Conv1dProblem& problem, const DeviceProperties& device);

// Estimated instructions that warps issue for the problem (tap_work.h).
double long_filter_issue_slots(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const LongFilterPlan& plan);

}  // namespace sluice
