#include <type_traits>

#include "kernels/filter2d/launch.cuh"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  if (plan.which == Filter2dKernel::staged) return launch_staged<Element>(params, plan, linked, stream);
  if constexpr (!std::is_same_v<Element, double>) {
    if (takes_strips(plan.which)) return launch_aligned<Element>(params, plan, linked, stream);
  }
  return launch_direct<Element>(params, plan, linked, stream);
}

}  // namespace

cudaError_t launch_filter2d(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  switch (params.dtype) {
    case DType::float32: return launch_as<float>(params, plan, linked, stream);
    case DType::float16: return launch_as<__half>(params, plan, linked, stream);
    case DType::bfloat16: return launch_as<__nv_bfloat16>(params, plan, linked, stream);
    case DType::float64: return launch_as<double>(params, plan, linked, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sluice
