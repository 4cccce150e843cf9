#include "kernels/transform/launch_staged.cuh"

namespace sluice {

template cudaError_t launch_staged<__nv_bfloat16>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
