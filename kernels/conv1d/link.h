// What the linker is asked for. No CUDA header, so that which kernel a plan names is tested without a GPU.
#pragma once

#include "kernels/conv1d/conv1d.h"
#include "kernels/linking/request.h"

namespace sluice {

// The kernel that launch_conv1d would run.
LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan);

// The same for a plan of one method.
LinkRequest depthwise_link_request(const Conv1dParams& params, const Conv1dPlan& plan);
LinkRequest dense_link_request(const Conv1dParams& params, const Conv1dPlan& plan);
// The kernel that lays the input with `pre` on the way, where the plan has it so.
LinkRequest lay_link_request(const Conv1dParams& params);
LinkRequest long_filter_link_request(const Conv1dParams& params, const Conv1dPlan& plan);
LinkRequest few_outputs_link_request(const Conv1dParams& params, const Conv1dPlan& plan);
LinkRequest fourier_link_request(const Conv1dParams& params, const Conv1dPlan& plan);

// The tensors' dtypes of a kernel that has all of them.
void set_tensor_dtypes(LinkRequest& request, const Conv1dParams& params);

}  // namespace sluice
