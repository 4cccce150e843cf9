#pragma once

#include <cuda_runtime_api.h>

#include "kernels/filter2d/link.h"

namespace sluice {

// Enqueues one kernel: `linked`, which is the linker's answer to link_request, or where that is null the interpreted
// form. `plan` is plan_filter2d's for these params and that form; the result has at least one element.
cudaError_t launch_filter2d(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream);

}  // namespace sluice
