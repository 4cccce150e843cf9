// Launches a plan's kernel: the linked one, or else an interpreted one.
#pragma once

#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/pipeline/plan.h"

namespace sluice {

template <class Arguments>
using Kernel = void (*)(Arguments);

// `interpreted()` returns the Kernel<Arguments> to run if `linked` is null.
template <class Arguments, class Interpreted>
cudaError_t launch_planned(const Plan& plan, const void* linked, cudaStream_t stream, const Arguments& arguments,
                           Interpreted&& interpreted, Start start = Start::behind) {
  const void* const kernel =
      linked != nullptr ? linked : reinterpret_cast<const void*>(static_cast<Kernel<Arguments>>(interpreted()));
  return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, arguments, start);
}

}  // namespace sluice
