#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/causal_conv1d/update.h"
#include "kernels/shared/common/device_properties.h"

namespace sluice {

// The largest history in columns that a block of one thread can hold, for sums of inputs of this dtype.
long long most_history(const DeviceProperties& device, DType dtype);

// Enqueues one kernel; there is at least one channel, and one row of work.
cudaError_t launch_causal_conv1d_update(const UpdateParams& params, const DeviceProperties& device,
                                        cudaStream_t stream);

}  // namespace sluice
