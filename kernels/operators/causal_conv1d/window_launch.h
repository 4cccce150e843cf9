#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/causal_conv1d/depthwise_overlap.h"
#include "kernels/operators/causal_conv1d/window.h"

namespace sluice {

// Each enqueues its kernel, which has at least one element to write.
cudaError_t launch_window(const WindowParams& params, cudaStream_t stream);
cudaError_t launch_zero_rows(const ZeroRowsParams& params, cudaStream_t stream);
cudaError_t launch_overlap(const OverlapParams& params, cudaStream_t stream);
cudaError_t launch_depthwise_overlap(const DepthwiseOverlapParams& params, cudaStream_t stream);

}  // namespace sluice
