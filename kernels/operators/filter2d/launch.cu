#include "kernels/operators/filter2d/launch.h"

#include "kernels/shared/common/element.cuh"
#include "kernels/shared/pipeline/enqueue.h"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  switch (plan.which) {
#define SLUICE_KERNEL(name, file, module, dtypes, ...) SLUICE_ENQUEUE(Filter2dKernel, name, dtypes)
#include "kernels/operators/filter2d/kernels.def"
  }
  return cudaErrorNotSupported;
}

}  // namespace

cudaError_t launch_filter2d(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream) {
  return with_element(params.image.dtype,
                      [&]<class Element>() { return launch_as<Element>(params, plan, linked, stream); });
}

}  // namespace sluice
