#pragma once

#include "kernels/operators/transform/launch.cuh"
#include "kernels/operators/transform/staged.cuh"

namespace sluice {

// Interpreted, everything is walked as strided, with a flat tensor as one row: this halves the kernels.
template <class Element>
cudaError_t launch_staged(const TransformParams& params, const TransformPlan& plan, const void* linked,
                          cudaStream_t stream) {
  using Arguments = TransformArguments<Element, Walk::strided>;
  if (linked != nullptr && plan.problem.walk == Walk::flat) {
    const TransformArguments<Element, Walk::flat> a = make_arguments<Element, Walk::flat>(params, plan);
    return launch_kernel(linked, plan.grid, plan.threads, plan.shared_memory, stream, a);
  }
  return launch_planned(plan, linked, stream, make_arguments<Element, Walk::strided>(params, plan),
                        []() -> Kernel<Arguments> { return staged_transform_kernel<Element>; });
}

}  // namespace sluice
