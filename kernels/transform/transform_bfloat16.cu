#include "kernels/transform/launch.cuh"

namespace sluice {

template cudaError_t launch_transform_as<__nv_bfloat16>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
