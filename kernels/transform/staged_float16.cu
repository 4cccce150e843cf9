#include "kernels/transform/launch_staged.cuh"

namespace sluice {

template cudaError_t launch_staged<__half>(const TransformParams&, const Plan&, const void*, cudaStream_t);

}  // namespace sluice
