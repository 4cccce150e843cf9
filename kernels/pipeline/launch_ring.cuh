// The same of a schedule with a ring. Apart, because it includes every pipe, which takes nvcc seconds.
#pragma once

#include "kernels/pipeline/launch.cuh"
#include "kernels/pipeline/pipes.cuh"

namespace sluice {

// `interpreted` says which kernel runs a pipe, as [&]<class Pipe>() -> Kernel<Arguments> { ... }.
template <class Arguments, class Interpreted>
cudaError_t launch_ring(const Plan& plan, const void* linked, cudaStream_t stream, const Arguments& arguments,
                        Interpreted&& interpreted) {
  return launch_planned(plan, linked, stream, arguments, [&] { return with_pipe(plan.schedule, interpreted); });
}

}  // namespace sluice
