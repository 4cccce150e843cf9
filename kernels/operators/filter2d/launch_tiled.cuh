#pragma once

#include "kernels/operators/filter2d/launch.cuh"
#include "kernels/operators/filter2d/tiled.cuh"

namespace sluice {

template <class Element, class Image>
Kernel<SamplingArguments<Element>> tiled_kernel(bool separable) {
  return separable ? tiled_filter2d_kernel<Element, Image, true> : tiled_filter2d_kernel<Element, Image, false>;
}

template <class Element>
cudaError_t launch_tiled(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                         cudaStream_t stream) {
  const SamplingArguments<Element> a = make_sampling_arguments<Element>(params, plan);
  return launch_planned(plan, linked, stream, a, [&]() -> Kernel<SamplingArguments<Element>> {
    if constexpr (std::is_same_v<Element, float>) {
      if (params.sampling.bytes) return tiled_kernel<Element, std::uint8_t>(params.row_taps.exists());
    }
    return tiled_kernel<Element, Element>(params.row_taps.exists());
  });
}

}  // namespace sluice
