#include "kernels/transform/launch_direct.cuh"

namespace sluice {

template cudaError_t launch_direct<__nv_bfloat16>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
