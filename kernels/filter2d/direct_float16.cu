#include "kernels/filter2d/launch_direct.cuh"

namespace sluice {

template cudaError_t launch_direct<__half>(const Filter2dParams&, const Filter2dPlan&, const void*, cudaStream_t);

}  // namespace sluice
