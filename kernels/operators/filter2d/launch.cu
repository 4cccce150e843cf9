#include "kernels/operators/filter2d/launch.cuh"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  if (plan.which == Filter2dKernel::staged) return launch_staged<Element>(params, plan, linked, stream);
  if constexpr (sizeof(Element) == 2) {
    if (plan.which == Filter2dKernel::toeplitz) return launch_toeplitz<Element>(params, plan, linked, stream);
  }
  if constexpr (kDType<Element> != DType::float64) {
    if (takes_tiles(plan.which)) return launch_tiled<Element>(params, plan, linked, stream);
    if (takes_columns(plan.which)) return launch_columns<Element>(params, plan, linked, stream);
    if (takes_strips(plan.which) || takes_unaligned_strips(plan.which)) {
      return launch_aligned<Element>(params, plan, linked, stream);
    }
  }
  return launch_direct<Element>(params, plan, linked, stream);
}

}  // namespace

cudaError_t launch_filter2d(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream) {
  return with_element(params.image.dtype,
                      [&]<class Element>() { return launch_as<Element>(params, plan, linked, stream); });
}

}  // namespace sluice
