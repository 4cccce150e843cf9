#pragma once

#include "kernels/operators/conv1d/depthwise/direct_rows.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps_rows.cuh"
#include "kernels/operators/conv1d/depthwise/launch.cuh"
#include "kernels/operators/conv1d/depthwise/plain_rows.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Conv1dArguments<Element>> {
    if constexpr (kDType<Element> != DType::float64) {
      if (plan.depthwise.which == DepthwiseKernel::few_taps_rows) return few_taps_rows_kernel<Element>;
    }
    if (plan.depthwise.which == DepthwiseKernel::plain_rows) {
      return params.post.empty() ? plain_rows_kernel<NoChains, Element>
                                 : plain_rows_kernel<InterpretedChains<Element, false>, Element>;
    }
    return params.pre.empty() && params.post.empty() ? direct_rows_kernel<NoChains, Element>
                                                     : direct_rows_kernel<InterpretedChains<Element, true>, Element>;
  });
}

}  // namespace sluice
