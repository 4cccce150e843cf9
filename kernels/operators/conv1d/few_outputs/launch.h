#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// launch_conv1d for a plan of the method for few output channels.
cudaError_t launch_few_outputs(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

}  // namespace sluice
