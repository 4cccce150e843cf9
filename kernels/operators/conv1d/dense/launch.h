#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"

namespace sluice {

// Enqueues the packing of a weight of at least one element.
cudaError_t launch_pack(const PackParams& params, cudaStream_t stream);
// Enqueues the conversion of an input of at least one element, with a chain applied: by `linked`, the linker's answer
// to to_channels_last_link_request, or interpreted where that is null.
cudaError_t launch_to_channels_last(const ToChannelsLastParams& params, const Program& pre, const Operand<3>* operands,
                                    const void* linked, cudaStream_t stream);

// launch_conv1d for a plan of the dense method.
cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                         cudaStream_t stream);

}  // namespace sluice
