#include "kernels/conv1d/depthwise/launch_staged_rows.cuh"

namespace sluice {

template cudaError_t launch_staged_rows<__nv_bfloat16>(const Conv1dParams&, const Conv1dPlan&, const void*, cudaStream_t);

}  // namespace sluice
