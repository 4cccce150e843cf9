// Link requests of conv1d's kernels. Without CUDA headers, so that tests without a GPU check which kernel a plan names.
#pragma once

#include "kernels/linking/request.h"
#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// The kernel that launch_conv1d would run.
LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan);

// The kernel that converts the input and applies `pre`, for plans with applies_pre_first.
LinkRequest to_channels_last_link_request(const Conv1dParams& params);

}  // namespace sluice
