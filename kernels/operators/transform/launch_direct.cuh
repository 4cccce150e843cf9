#pragma once

#include "kernels/operators/transform/direct.cuh"
#include "kernels/operators/transform/launch.cuh"

namespace sluice {

template <class Element, Walk walk>
cudaError_t launch_direct_walk(const TransformParams& params, const TransformPlan& plan, const void* linked,
                               cudaStream_t stream) {
  const TransformArguments<Element, walk> a = make_arguments<Element, walk>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<TransformArguments<Element, walk>> {
    if constexpr (walk == Walk::flat) {
      if (params.program.operands == 0) return direct_transform_kernel<Element, walk, false>;
    }
    return direct_transform_kernel<Element, walk, true>;
  });
}

template <class Element>
cudaError_t launch_direct(const TransformParams& params, const TransformPlan& plan, const void* linked,
                          cudaStream_t stream) {
  switch (plan.problem.walk) {
    case Walk::flat: return launch_direct_walk<Element, Walk::flat>(params, plan, linked, stream);
    case Walk::rows: return launch_direct_walk<Element, Walk::rows>(params, plan, linked, stream);
    default: return launch_direct_walk<Element, Walk::strided>(params, plan, linked, stream);
  }
}

}  // namespace sluice
