#include "kernels/operators/transform/launch.cuh"

namespace sluice {
namespace {

template <class Element>
cudaError_t launch_as(const TransformParams& params, const TransformPlan& plan, const void* linked,
                      cudaStream_t stream) {
  return plan.schedule == Schedule::direct ? launch_direct<Element>(params, plan, linked, stream)
                                           : launch_staged<Element>(params, plan, linked, stream);
}

}  // namespace

cudaError_t launch_transform(const TransformParams& params, const TransformPlan& plan, const void* linked,
                             cudaStream_t stream) {
  return with_element(params.input.dtype,
                      [&]<class Element>() { return launch_as<Element>(params, plan, linked, stream); });
}

}  // namespace sluice
