#pragma once

#include <type_traits>

#include "kernels/pipeline/pipes.cuh"
#include "kernels/transform/launch.cuh"
#include "kernels/transform/staged_kernel.cuh"

namespace sluice {

template <class Element, Walk walk>
cudaError_t launch_staged_walk(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  const TransformArguments<Element, walk> a = make_arguments<Element, walk>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  return with_pipe(plan.schedule, [&](auto* pipe) {
    return launch(staged_transform_kernel<Element, walk, std::remove_pointer_t<decltype(pipe)>>);
  });
}

// Rows are walked as strided ones: a tile of a ring is of one row anyway.
template <class Element>
cudaError_t launch_staged(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  return problem_of(params).walk == Walk::flat ? launch_staged_walk<Element, Walk::flat>(params, plan, linked, stream)
                                               : launch_staged_walk<Element, Walk::strided>(params, plan, linked, stream);
}

}  // namespace sluice
