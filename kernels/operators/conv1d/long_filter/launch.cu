#include "kernels/operators/conv1d/long_filter/launch.h"

#include "kernels/shared/common/element.cuh"

namespace sluice {

// launch_long_filter.cuh
template <class Element>
cudaError_t launch_long_filter(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

cudaError_t launch_long_filter(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  return params.input.dtype == DType::float16 ? launch_long_filter<__half>(params, plan, linked, stream)
                                              : launch_long_filter<__nv_bfloat16>(params, plan, linked, stream);
}

}  // namespace sluice
