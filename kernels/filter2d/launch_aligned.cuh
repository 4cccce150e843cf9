#pragma once

#include "kernels/filter2d/aligned_kernel.cuh"
#include "kernels/filter2d/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_aligned(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream) {
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Filter2dArguments<Element>> {
    const bool is_3 = plan.which == Filter2dKernel::aligned3;
    if (params.image.dtype == params.output.dtype) {
      return is_3 ? aligned_square_kernel<Element, 3, Element> : aligned_square_kernel<Element, 5, Element>;
    }
    return is_3 ? aligned_square_kernel<Element, 3, void> : aligned_square_kernel<Element, 5, void>;
  });
}

}  // namespace sluice
