#pragma once

#include <type_traits>

#include "kernels/filter2d/launch.cuh"
#include "kernels/filter2d/staged_kernel.cuh"
#include "kernels/pipeline/pipes.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  return with_pipe(plan.schedule,
                   [&](auto* pipe) { return launch(staged_filter2d_kernel<Element, std::remove_pointer_t<decltype(pipe)>>); });
}

}  // namespace sluice
