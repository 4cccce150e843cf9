#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// Enqueues the packing of a weight of at least one element.
cudaError_t launch_pack_polyphase(const PolyphasePackParams& params, cudaStream_t stream);

}  // namespace sluice
