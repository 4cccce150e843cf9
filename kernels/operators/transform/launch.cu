#include "kernels/operators/transform/launch.h"

#include "kernels/shared/common/element.cuh"
#include "kernels/shared/pipeline/enqueue.h"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(TransformKernel kernel, const TransformParams& params, const TransformPlan& plan,
                      const void* linked, cudaStream_t stream) {
  switch (kernel) {
#define SLUICE_KERNEL(name, file, module, dtypes, ...) SLUICE_ENQUEUE(TransformKernel, name, dtypes)
#include "kernels/operators/transform/kernels.def"
  }
  return cudaErrorNotSupported;
}

}  // namespace

cudaError_t launch_transform(const TransformParams& params, const TransformPlan& plan, const void* linked,
                             cudaStream_t stream) {
  const bool is_interpreted_ring = plan.which == TransformKernel::staged_flat && linked == nullptr;
  const TransformKernel kernel = is_interpreted_ring ? TransformKernel::staged_strided : plan.which;
  return with_element(params.input.dtype,
                      [&]<class Element>() { return launch_as<Element>(kernel, params, plan, linked, stream); });
}

}  // namespace sluice
