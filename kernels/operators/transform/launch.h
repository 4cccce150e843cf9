#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/transform/link.h"

namespace sluice {

// Enqueues one kernel: `linked`, which the linker found for link_request, or the interpreted form if that is null.
// `plan` is plan_transform's for these params; there is at least one element.
cudaError_t launch_transform(const TransformParams& params, const TransformPlan& plan, const void* linked,
                             cudaStream_t stream);

}  // namespace sluice
