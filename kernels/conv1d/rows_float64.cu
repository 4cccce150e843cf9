#include "kernels/conv1d/depthwise/launch_rows.cuh"

namespace sluice {

template cudaError_t launch_rows<double>(const Conv1dParams&, const Conv1dPlan&, const void*, cudaStream_t);

}  // namespace sluice
