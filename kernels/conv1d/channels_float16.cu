#include "kernels/conv1d/depthwise/launch_channels.cuh"

namespace sluice {

template cudaError_t launch_channels<__half>(const Conv1dParams&, const Conv1dPlan&, const void*, cudaStream_t);

}  // namespace sluice
