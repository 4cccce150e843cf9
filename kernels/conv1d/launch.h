#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/link.h"

namespace sluice {

// Enqueues one kernel: `linked`, which is the linker's answer to link_request, or where that is null the interpreted
// form. `plan` is plan_conv1d's for these params; the result has at least one element.
cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream);

}  // namespace sluice
