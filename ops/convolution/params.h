// Params and problems of conv1d's kernels for a Convolution.
#pragma once

#include <optional>

#include "ops/convolution/convolution.h"

namespace sluice {

// Params with the result in `result`. A transposed convolution's components are derived from them. Only depthwise ones
// have a `multiplier`.
Conv1dParams make_params(const Convolution& convolution, const TensorView& result);

// The problem of the convolution's params, or of a launch's.
Conv1dProblem make_problem(const Convolution& convolution, const Conv1dParams& params);

// The weight's stride between output channels of a depthwise convolution; nothing where it is not constant.
std::optional<int64_t> channel_stride(const Convolution& convolution);

// A plan's detail text, followed by `more`. `in_passes`: its chains are not linked.
std::string detail_of(const Conv1dPlan& plan, const Interleave& interleave, bool in_passes, const std::string& more);

}  // namespace sluice
