#include "kernels/operators/conv1d/few_outputs/launch.h"

#include "kernels/shared/common/element.cuh"

namespace sluice {

// launch_few_outputs.cuh
template <class Element>
cudaError_t launch_few_outputs(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

cudaError_t launch_few_outputs(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  return params.input.dtype == DType::float16 ? launch_few_outputs<__half>(params, plan, linked, stream)
                                              : launch_few_outputs<__nv_bfloat16>(params, plan, linked, stream);
}

}  // namespace sluice
