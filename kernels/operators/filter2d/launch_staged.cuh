#pragma once

#include "kernels/operators/filter2d/launch.cuh"
#include "kernels/operators/filter2d/staged.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream) {
  return launch_planned(plan, linked, stream, make_arguments<Element>(params, plan),
                        []() -> Kernel<Filter2dArguments<Element>> { return staged_filter2d_kernel<Element>; });
}

}  // namespace sluice
