#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/causal_conv1d/sequences.h"
#include "kernels/shared/common/device_properties.h"

namespace sluice {

// Each enqueues one kernel: results and states; the states alone, which have at least one column.
cudaError_t launch_sequences(const SequencesParams& params, const DeviceProperties& device, cudaStream_t stream);
cudaError_t launch_states(const SequencesParams& params, cudaStream_t stream);

}  // namespace sluice
