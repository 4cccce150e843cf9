#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/link.h"

namespace sluice {

// Enqueues the kernels of `plan`, which is plan_conv1d's for these params. That with the chains is `linked`, the
// linker's answer to link_request, or where that is null the interpreted form, which the dense method has none of.
// `workspace`: the plan's `workspace_bytes` of the device's memory, which nothing else uses until the kernels have run;
// null where the plan asks for none. The result has at least one element.
cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                          cudaStream_t stream);

}  // namespace sluice
