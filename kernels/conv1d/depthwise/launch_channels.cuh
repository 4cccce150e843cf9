#pragma once

#include "kernels/conv1d/depthwise/channels_kernel.cuh"
#include "kernels/conv1d/depthwise/few_taps_channels.cuh"
#include "kernels/conv1d/depthwise/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  if constexpr (sizeof(Element) < 8) {
    if (plan.depthwise.which == DepthwiseKernel::few_taps_channels) return launch(few_taps_channels_kernel<Element>);
  }
  return launch(direct_channels_kernel<Element>);
}

}  // namespace sluice
