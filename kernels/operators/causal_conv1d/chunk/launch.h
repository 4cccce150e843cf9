#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/causal_conv1d/chunk/chunk.h"

namespace sluice {

// Enqueues the kernels of a plan with blocks. `workspace`: plan.workspace_bytes, aligned to 128 bytes.
cudaError_t launch_chunk(const ChunkParams& params, const ChunkPlan& plan, const DeviceProperties& device,
                         void* workspace, cudaStream_t stream);

}  // namespace sluice
