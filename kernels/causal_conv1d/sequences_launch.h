#pragma once

#include <cuda_runtime_api.h>

#include "kernels/causal_conv1d/sequences.h"
#include "kernels/common/device_properties.h"

namespace sluice {

// Enqueue one kernel each: results and states; the states alone, of which there is at least one column.
cudaError_t launch_sequences(const SequencesParams& params, const DeviceProperties& device, cudaStream_t stream);
cudaError_t launch_states(const SequencesParams& params, cudaStream_t stream);

}  // namespace sluice
