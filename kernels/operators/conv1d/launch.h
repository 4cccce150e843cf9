#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/link.h"

namespace sluice {

// Enqueues the kernels of `plan`, which is plan_conv1d's for these params. The kernel with the chains is `linked`, the
// linker's answer to link_request, or interpreted where that is null; the dense method has no interpreted form.
// `workspace`: the plan's `workspace_bytes` of device memory, unused by others until the kernels have run; null where
// the plan needs none. The result has at least one element.
cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                          cudaStream_t stream);

}  // namespace sluice
