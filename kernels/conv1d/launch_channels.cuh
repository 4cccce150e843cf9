#pragma once

#include "kernels/conv1d/channels_kernel.cuh"
#include "kernels/conv1d/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  const bool plain = is_plain(params, plan) && params.post.operands == 0;
  return plain ? launch(direct_channels_kernel<Element, true>) : launch(direct_channels_kernel<Element, false>);
}

}  // namespace sluice
