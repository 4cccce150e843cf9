// The time of a dense plan, from which the plan is chosen.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

inline constexpr int kSplitProducts = 3;  // products of float32 in two parts

// Cycles in which the splits of a tile are joined.
long long join_cycles(const DensePlan& plan);

// Estimated cycles of the slowest block. In ping-pong, one warpgroup stores while the other multiplies.
long long block_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device);

// The same with all of the plan's passes.
long long all_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
