#pragma once

#include "kernels/operators/filter2d/launch.cuh"
#include "kernels/operators/filter2d/unaligned.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_aligned(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream) {
  if (takes_unaligned_strips(plan.which)) {
    const SamplingArguments<Element> a = make_sampling_arguments<Element>(params, plan);
    return launch_planned(plan, linked, stream, a, [&]() -> Kernel<SamplingArguments<Element>> {
      if constexpr (std::is_same_v<Element, float>) {
        using Byte = std::uint8_t;
        if (params.sampling.bytes) {
          return params.kernel_width == 3 ? unaligned_filter2d_kernel<Element, Byte, 3>
                                          : unaligned_filter2d_kernel<Element, Byte, 5>;
        }
      }
      return unaligned_filter2d_kernel<Element, Element, 3>;
    });
  }
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Filter2dArguments<Element>> {
    const bool is_3 = plan.which == Filter2dKernel::aligned3;
    if (params.image.dtype == params.output.dtype) {
      return is_3 ? aligned_filter2d_kernel<Element, 3, Element> : aligned_filter2d_kernel<Element, 5, Element>;
    }
    return is_3 ? aligned_filter2d_kernel<Element, 3, void> : aligned_filter2d_kernel<Element, 5, void>;
  });
}

}  // namespace sluice
