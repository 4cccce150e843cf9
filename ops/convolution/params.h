// Params and problems of conv1d's kernels for a Convolution.
#pragma once

#include <optional>

#include "ops/convolution/convolution.h"

namespace sluice {

// Params with this input and result. A transposed convolution's components are derived from them. Only depthwise
// convolutions have a `multiplier`.
Conv1dParams make_params(const Convolution& convolution, const TensorView& input, const TensorView& result);

// The problem of the convolution's params, or of a launch's.
Conv1dProblem make_problem(const Convolution& convolution, const Conv1dParams& params);

// The weight's stride between output channels of a depthwise convolution; nothing where it is not constant.
std::optional<int64_t> channel_stride(const Convolution& convolution);

// Whether the plan's own kernel has a chain.
bool is_chained(const Conv1dParams& params, const Conv1dPlan& plan);

// Refuses a schedule, because of the reason for aten.
void check_forced(const Convolution& convolution, const char* reason_for_aten);

}  // namespace sluice
