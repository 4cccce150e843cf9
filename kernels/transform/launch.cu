#include "kernels/transform/launch.cuh"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  return plan.schedule == Schedule::direct ? launch_direct<Element>(params, plan, linked, stream)
                                           : launch_staged<Element>(params, plan, linked, stream);
}

}  // namespace

cudaError_t launch_transform(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  switch (params.input_dtype) {
    case DType::float32: return launch_as<float>(params, plan, linked, stream);
    case DType::float16: return launch_as<__half>(params, plan, linked, stream);
    case DType::bfloat16: return launch_as<__nv_bfloat16>(params, plan, linked, stream);
    case DType::float64: return launch_as<double>(params, plan, linked, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sluice
