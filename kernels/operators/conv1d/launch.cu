#include "kernels/operators/conv1d/dense/launch.h"
#include "kernels/operators/conv1d/depthwise/launch.cuh"
#include "kernels/operators/conv1d/few_outputs/launch.h"
#include "kernels/operators/conv1d/fourier/launch.h"
#include "kernels/operators/conv1d/long_filter/launch.h"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  if constexpr (kDType<Element> != DType::float64) {
    if (takes_windows(plan.depthwise.which)) return launch_windows<Element>(params, plan, linked, stream);
  }
  switch (plan.depthwise.which) {
    case DepthwiseKernel::direct_channels:
    case DepthwiseKernel::few_taps_channels:
    case DepthwiseKernel::gated_channels:
    case DepthwiseKernel::eight_taps_channels: return launch_channels<Element>(params, plan, linked, stream);
    case DepthwiseKernel::staged_channels: return launch_staged_channels<Element>(params, plan, linked, stream);
    case DepthwiseKernel::staged_rows: return launch_staged_rows<Element>(params, plan, linked, stream);
    default: return launch_rows<Element>(params, plan, linked, stream);
  }
}

}  // namespace

cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                          cudaStream_t stream) {
  if (plan.which == Conv1dMethod::dense) return launch_dense(params, plan, linked, workspace, stream);
  if (plan.which == Conv1dMethod::long_filter) return launch_long_filter(params, plan, linked, stream);
  if (plan.which == Conv1dMethod::few_outputs) return launch_few_outputs(params, plan, linked, stream);
  if (plan.which == Conv1dMethod::fourier) return launch_fourier(params, plan, linked, workspace, stream);
  return with_element(params.input.dtype,
                      [&]<class Element>() { return launch_as<Element>(params, plan, linked, stream); });
}

}  // namespace sluice
