#pragma once

#include "kernels/operators/filter2d/launch.cuh"
#include "kernels/operators/filter2d/toeplitz.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_toeplitz(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream) {
  ToeplitzArguments<Element> a{make_sampling_arguments<Element>(params, plan)};
  a.by_lanes = FastDivisor(plan.lanes);
  const bool plain = params.pre.empty() && params.post.empty() && params.output.dtype == params.image.dtype;
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<ToeplitzArguments<Element>> {
    return plain ? plain_toeplitz_filter2d_kernel<Element> : toeplitz_filter2d_kernel<Element>;
  });
}

}  // namespace sluice
