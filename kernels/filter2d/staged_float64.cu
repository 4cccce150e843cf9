#include "kernels/filter2d/launch_staged.cuh"

namespace sluice {

template cudaError_t launch_staged<double>(const Filter2dParams&, const Filter2dPlan&, const void*, cudaStream_t);

}  // namespace sluice
