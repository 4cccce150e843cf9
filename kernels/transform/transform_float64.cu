#include "kernels/transform/launch.cuh"

namespace sluice {

template cudaError_t launch_transform_as<double>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
