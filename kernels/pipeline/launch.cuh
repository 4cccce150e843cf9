// Launching a kernel as its plan says: the one that the linker made, or else an interpreted one.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/pipeline/plan.h"

namespace sluice {

template <class Arguments>
using Kernel = void (*)(Arguments);

// `interpreted()` says which Kernel<Arguments> runs where there is no `linked` one.
template <class Arguments, class Interpreted>
cudaError_t launch_planned(const Plan& plan, const void* linked, cudaStream_t stream, const Arguments& arguments,
                           Interpreted&& interpreted) {
  if (linked != nullptr) return launch_kernel(linked, plan.grid, plan.threads, plan.shared_memory, stream, arguments);
  const Kernel<Arguments> kernel = interpreted();
  return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, arguments);
}

}  // namespace sluice
