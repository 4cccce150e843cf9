#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/filter2d/link.h"

namespace sluice {

// Enqueues one kernel: `linked`, which the linker found for link_request, or the interpreted form if that is null.
// `plan` is plan_filter2d's for these params and that form; the result has at least one element.
cudaError_t launch_filter2d(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream);

}  // namespace sluice
