#pragma once

#include <cuda_runtime_api.h>

#include "kernels/linking/request.h"
#include "kernels/transform/transform.h"

namespace sluice {

// The kernel that launch_transform would run, for the linker.
LinkRequest link_request(const TransformParams& params, const Plan& plan);

// Enqueues one kernel: `linked`, which is the linker's answer to link_request, or where that is null the interpreted
// form. `plan` is plan_transform's for these params; there is at least one element.
cudaError_t launch_transform(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream);

}  // namespace sluice
