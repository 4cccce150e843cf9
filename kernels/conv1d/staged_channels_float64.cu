#include "kernels/conv1d/depthwise/launch_staged_channels.cuh"

namespace sluice {

template cudaError_t launch_staged_channels<double>(const Conv1dParams&, const Conv1dPlan&, const void*, cudaStream_t);

}  // namespace sluice
