#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d.h"

namespace sluice {

// Enqueues one kernel. `plan` is plan_conv1d's for these params; the result has at least one element.
cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, cudaStream_t stream);

}  // namespace sluice
