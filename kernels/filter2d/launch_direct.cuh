#pragma once

#include "kernels/filter2d/direct_kernel.cuh"
#include "kernels/filter2d/launch.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_direct(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  const Filter2dForm form = form_of(params, plan);
  if (form == Filter2dForm::separable) return launch(direct_filter2d_kernel<Element, true>);
  // The squares' own kernels interpret no tensors.
  if (form == Filter2dForm::dense || params.post.operands > 0) return launch(direct_filter2d_kernel<Element, false>);
  return form == Filter2dForm::square3 ? launch(direct_square_kernel<Element, 3>) : launch(direct_square_kernel<Element, 5>);
}

}  // namespace sluice
