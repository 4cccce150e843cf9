#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d.h"

namespace sluice {

// Enqueues the packing of a weight of at least one element.
cudaError_t launch_pack(const PackParams& params, cudaStream_t stream);
cudaError_t launch_pack_phases(const PhasePackParams& params, cudaStream_t stream);

// launch_conv1d for a plan of the dense method.
cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                         cudaStream_t stream);

}  // namespace sluice
