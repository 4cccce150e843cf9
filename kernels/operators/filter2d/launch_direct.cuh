#pragma once

#include "kernels/operators/filter2d/direct.cuh"
#include "kernels/operators/filter2d/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_direct(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream) {
  if (is_sampled(plan.which)) {
    const SamplingArguments<Element> a = make_sampling_arguments<Element>(params, plan);
    return launch_planned(plan, linked, stream, a, [&]() -> Kernel<SamplingArguments<Element>> {
      if constexpr (std::is_same_v<Element, float>) {
        if (params.sampling.bytes) return sampled_filter2d_kernel<Element, std::uint8_t>;
      }
      return sampled_filter2d_kernel<Element, Element>;
    });
  }
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Filter2dArguments<Element>> {
    switch (plan.which) {
      case Filter2dKernel::square3: return square_filter2d_kernel<Element, 3>;
      case Filter2dKernel::square5: return square_filter2d_kernel<Element, 5>;
      case Filter2dKernel::separable: return patches_filter2d_kernel<Element, true>;
      default: return patches_filter2d_kernel<Element, false>;
    }
  });
}

}  // namespace sluice
