#pragma once

#include "kernels/operators/conv1d/depthwise/launch.cuh"
#include "kernels/operators/conv1d/depthwise/staged_rows.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  return launch_planned(plan, linked, stream, make_arguments<Element>(params, plan),
                        []() -> Kernel<Conv1dArguments<Element>> { return staged_rows_kernel<Element>; });
}

}  // namespace sluice
