#pragma once

#include "kernels/conv1d/depthwise/few_taps_rows.cuh"
#include "kernels/conv1d/depthwise/launch.cuh"
#include "kernels/conv1d/depthwise/rows_kernel.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  if constexpr (sizeof(Element) < 8) {
    if (plan.depthwise.which == DepthwiseKernel::few_taps_rows) return launch(few_taps_rows_kernel<Element>);
  }
  return plan.depthwise.which == DepthwiseKernel::plain_rows ? launch(plain_rows_kernel<Element>)
                                                            : launch(direct_rows_kernel<Element>);
}

}  // namespace sluice
