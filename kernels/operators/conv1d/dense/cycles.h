// The time of a dense plan, from which the plan is chosen.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// Estimated cycles of the slowest block. In ping-pong, one warpgroup stores while the other multiplies.
long long block_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device);

// The same with all of the plan's passes.
long long all_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
