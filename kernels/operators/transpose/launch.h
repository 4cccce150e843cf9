#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/transpose/transpose.h"

namespace sluice {

// Enqueues the transposition of at least one element.
cudaError_t launch_transpose(const TransposeParams& params, cudaStream_t stream);

}  // namespace sluice
