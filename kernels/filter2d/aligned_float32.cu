#include "kernels/filter2d/launch_aligned.cuh"

namespace sluice {

template cudaError_t launch_aligned<float>(const Filter2dParams&, const Filter2dPlan&, const void*, cudaStream_t);

}  // namespace sluice
