#pragma once

#include "kernels/operators/conv1d/depthwise/launch.cuh"
#include "kernels/operators/conv1d/depthwise/window_channels.cuh"
#include "kernels/operators/conv1d/depthwise/window_rows.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_windows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                           cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Conv1dArguments<Element>> {
    if (plan.depthwise.which == DepthwiseKernel::window_rows) return window_rows_kernel<Element>;
    if constexpr (sizeof(Element) == 2) {
      if (plan.depthwise.which == DepthwiseKernel::window_channels_pairs) return window_channels_kernel<2, Element>;
    }
    return window_channels_kernel<1, Element>;
  });
}

}  // namespace sluice
