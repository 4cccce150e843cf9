#pragma once

#include <type_traits>

#include "kernels/conv1d/depthwise/launch.cuh"
#include "kernels/conv1d/depthwise/staged_channels.cuh"
#include "kernels/pipeline/pipes.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  return with_pipe(plan.schedule,
                   [&](auto* pipe) { return launch(staged_channels_kernel<Element, std::remove_pointer_t<decltype(pipe)>>); });
}

}  // namespace sluice
