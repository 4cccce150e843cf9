#include "kernels/filter2d/launch_aligned.cuh"

namespace sluice {

template cudaError_t launch_aligned<__nv_bfloat16>(const Filter2dParams&, const Filter2dPlan&, const void*, cudaStream_t);

}  // namespace sluice
