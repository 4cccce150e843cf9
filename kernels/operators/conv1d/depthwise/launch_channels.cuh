#pragma once

#include "kernels/operators/conv1d/depthwise/direct_channels.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps_channels.cuh"
#include "kernels/operators/conv1d/depthwise/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                            cudaStream_t stream) {
  const Conv1dArguments<Element> a = make_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<Conv1dArguments<Element>> {
    if constexpr (kDType<Element> != DType::float64) {
      switch (plan.depthwise.which) {
        case DepthwiseKernel::few_taps_channels: return few_taps_channels_kernel<Element>;
        case DepthwiseKernel::gated_channels: return gated_channels_kernel<Element>;
        case DepthwiseKernel::eight_taps_channels: return eight_taps_channels_kernel<Element>;
        default: break;
      }
    }
    return direct_channels_kernel<Element>;
  });
}

}  // namespace sluice
