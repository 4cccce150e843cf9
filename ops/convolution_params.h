// A convolution as conv1d's kernels take it.
#pragma once

#include <optional>

#include "ops/convolution.h"

namespace sluice {

// With its result in `result`, a transposed one's phases from; only depthwise ones have a `multiplier`.
Conv1dParams make_params(const Convolution& convolution, const TensorView& result);

// Of params that are the convolution's, or of a launch.
Conv1dProblem make_problem(const Convolution& convolution, const Conv1dParams& params);

// From an output channel of a depthwise convolution to the next one; nothing where they are not equally far apart.
std::optional<int64_t> channel_stride(const Convolution& convolution);

// What a plan has to say of itself, and `more`. `in_passes`: its chains are not linked.
std::string detail_of(const Conv1dPlan& plan, const Interleave& interleave, bool in_passes, const std::string& more);

}  // namespace sluice
