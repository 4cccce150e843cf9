#include "kernels/filter2d/launch_aligned.cuh"

namespace sluice {

template cudaError_t launch_aligned<__half>(const Filter2dParams&, const Filter2dPlan&, const void*, cudaStream_t);

}  // namespace sluice
