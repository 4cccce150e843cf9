#pragma once

#include <type_traits>

#include "kernels/pipeline/pipes.cuh"
#include "kernels/transform/launch.cuh"
#include "kernels/transform/staged_kernel.cuh"

namespace sluice {

// Interpreted, everything is walked as strided, where a flat tensor is one row: that halves the kernels.
template <class Element>
cudaError_t launch_staged(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  const auto launch = [&](auto kernel, const auto& a) {
    return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a);
  };
  if (linked != nullptr && problem_of(params).walk == Walk::flat) {
    return launch(linked, make_arguments<Element, Walk::flat>(params, plan));
  }
  const TransformArguments<Element, Walk::strided> a = make_arguments<Element, Walk::strided>(params, plan);
  if (linked != nullptr) return launch(linked, a);
  return with_pipe(plan.schedule, [&](auto* pipe) {
    return launch(staged_transform_kernel<Element, std::remove_pointer_t<decltype(pipe)>>, a);
  });
}

}  // namespace sluice
