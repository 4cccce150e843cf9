#include "kernels/transform/launch_direct.cuh"

namespace sluice {

template cudaError_t launch_direct<float>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
