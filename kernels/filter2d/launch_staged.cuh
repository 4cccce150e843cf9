#pragma once

#include "kernels/filter2d/launch.cuh"
#include "kernels/filter2d/staged_kernel.cuh"
#include "kernels/pipeline/launch_ring.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream) {
  return launch_ring(
      plan, linked, stream, make_arguments<Element>(params, plan),
      [&]<class Pipe>() -> Kernel<Filter2dArguments<Element>> { return staged_filter2d_kernel<Element, Pipe>; });
}

}  // namespace sluice
