#include "kernels/operators/conv1d/launch.h"

#include "kernels/operators/conv1d/dense/launch.h"
#include "kernels/operators/conv1d/fourier/launch.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/pipeline/enqueue.h"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_depthwise(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                             cudaStream_t stream) {
  switch (plan.depthwise.which) {
#define SLUICE_KERNEL(name, file, module, dtypes, ...) SLUICE_ENQUEUE(DepthwiseKernel, name, dtypes)
#include "kernels/operators/conv1d/depthwise/kernels.def"
  }
  return cudaErrorNotSupported;
}

template <class Element>
cudaError_t launch_long_filter(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  switch (plan.long_filter.which) {
#define SLUICE_KERNEL(name, file, module, dtypes, ...) SLUICE_ENQUEUE(LongFilterKernel, name, dtypes)
#include "kernels/operators/conv1d/long_filter/kernels.def"
  }
  return cudaErrorNotSupported;
}

template <class Element>
cudaError_t launch_few_outputs(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  switch (kernel_of(plan.few_outputs)) {
#define SLUICE_KERNEL(name, file, module, dtypes, ...) SLUICE_ENQUEUE(FewOutputsKernel, name, dtypes)
#include "kernels/operators/conv1d/few_outputs/kernels.def"
  }
  return cudaErrorNotSupported;
}

}  // namespace

cudaError_t launch_conv1d(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                          cudaStream_t stream) {
  if (plan.which == Conv1dMethod::dense) return launch_dense(params, plan, linked, workspace, stream);
  if (plan.which == Conv1dMethod::fourier) return launch_fourier(params, plan, linked, workspace, stream);
  return with_element(params.input.dtype, [&]<class Element>() {
    switch (plan.which) {
      case Conv1dMethod::long_filter: return launch_long_filter<Element>(params, plan, linked, stream);
      case Conv1dMethod::few_outputs: return launch_few_outputs<Element>(params, plan, linked, stream);
      default: return launch_depthwise<Element>(params, plan, linked, stream);
    }
  });
}

}  // namespace sluice
