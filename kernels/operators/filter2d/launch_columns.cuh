#pragma once

#include "kernels/operators/filter2d/columns.cuh"
#include "kernels/operators/filter2d/launch.cuh"

namespace sluice {

template <class Element, class Image, int Side>
Kernel<ColumnArguments<Element>> columns_kernel(bool plain) {
  return plain ? plain_columns_filter2d_kernel<Element, Image, Side> : columns_filter2d_kernel<Element, Image, Side>;
}

template <class Element>
cudaError_t launch_columns(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream) {
  ColumnArguments<Element> a{make_sampling_arguments<Element>(params, plan)};
  a.by_positions = FastDivisor(plan.positions);
  a.by_interleaved = FastDivisor(plan.interleaved);
  a.by_groups = FastDivisor(plan.groups);
  a.by_blocks = FastDivisor(plan.grid / plan.strips_down);
  const bool plain = params.pre.empty() && params.post.empty() && params.output.dtype == params.image.dtype;
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<ColumnArguments<Element>> {
    if constexpr (std::is_same_v<Element, float>) {
      using Byte = std::uint8_t;
      if (params.sampling.bytes) {
        return params.kernel_width == 3 ? columns_kernel<Element, Byte, 3>(plain)
                                        : columns_kernel<Element, Byte, 5>(plain);
      }
    }
    switch (plan.which) {
      case Filter2dKernel::columns3: return columns_kernel<Element, Element, 3>(plain);
      case Filter2dKernel::columns5: return columns_kernel<Element, Element, 5>(plain);
      case Filter2dKernel::columns7: return columns_kernel<Element, Element, 7>(plain);
      default: return columns_kernel<Element, Element, 9>(plain);
    }
  });
}

}  // namespace sluice
