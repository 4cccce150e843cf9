// Launches a plan's kernel: the linked one, or else an interpreted one.
#pragma once

#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/pipeline/enqueue.h"
#include "kernels/shared/pipeline/plan.h"

namespace sluice {

template <class Arguments>
using Kernel = void (*)(Arguments);

// The interpreted form of a kernel, beside which it is specialised. `of(params)` returns its Kernel<Arguments>, or null
// where it has none for the params; `start(params)`, if there is one, how it follows the stream's previous kernel.
template <auto which, class Element, int... tile>
struct Interpreted;

// `fill(arguments, params, plan)` sets all members of the kernel's arguments.
template <class Arguments, class Params, class OwnPlan>
cudaError_t launch_planned(Kernel<Arguments> interpreted, const Params& params, const OwnPlan& plan, const void* linked,
                           cudaStream_t stream, Start start = Start::behind) {
  const void* const kernel = linked != nullptr ? linked : reinterpret_cast<const void*>(interpreted);
  if (kernel == nullptr) return cudaErrorNotSupported;
  Arguments arguments;
  fill(arguments, params, plan);
  return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, arguments, start);
}

template <auto which, class Element, int... tile, class Params, class OwnPlan>
cudaError_t enqueue(const Params& params, const OwnPlan& plan, const void* linked, cudaStream_t stream) {
  using Own = Interpreted<which, Element, tile...>;
  Start start = Start::behind;
  if constexpr (requires { Own::start(params); }) start = Own::start(params);
  return launch_planned(Own::of(params), params, plan, linked, stream, start);
}

}  // namespace sluice
