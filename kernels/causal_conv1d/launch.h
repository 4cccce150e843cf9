#pragma once

#include <cuda_runtime_api.h>

#include "kernels/causal_conv1d/causal_conv1d.h"

namespace sluice {

// Enqueues one kernel; there is at least one element of state.
cudaError_t launch_final_states(const FinalStatesParams& params, cudaStream_t stream);

}  // namespace sluice
