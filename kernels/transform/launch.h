#pragma once

#include <cuda_runtime_api.h>

#include "kernels/transform/transform.h"

namespace sluice {

// Enqueues one kernel. `plan` is plan_transform's for these params; there is at least one element.
cudaError_t launch_transform(const TransformParams& params, const Plan& plan, cudaStream_t stream);

}  // namespace sluice
