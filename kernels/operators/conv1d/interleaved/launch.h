#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// Enqueues the packing of a weight of at least one element.
cudaError_t launch_pack_polyphase(const PolyphasePackParams& params, cudaStream_t stream);

// launch_interleaved.cuh
template <class Element, int Blocks, int Channels>
cudaError_t launch_interleaved(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

}  // namespace sluice
