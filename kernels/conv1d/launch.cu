#include "kernels/conv1d/depthwise/launch.cuh"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  if (plan.layout == Conv1dLayout::channels_last) {
    return plan.schedule == Schedule::direct ? launch_channels<Element>(params, plan, linked, stream)
                                             : launch_staged_channels<Element>(params, plan, linked, stream);
  }
  return plan.schedule == Schedule::direct ? launch_rows<Element>(params, plan, linked, stream)
                                           : launch_staged_rows<Element>(params, plan, linked, stream);
}

}  // namespace

cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  switch (params.input_dtype) {
    case DType::float32: return launch_as<float>(params, plan, linked, stream);
    case DType::float16: return launch_as<__half>(params, plan, linked, stream);
    case DType::bfloat16: return launch_as<__nv_bfloat16>(params, plan, linked, stream);
    case DType::float64: return launch_as<double>(params, plan, linked, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sluice
