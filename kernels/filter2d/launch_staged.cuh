#pragma once

#include "kernels/filter2d/launch.cuh"
#include "kernels/filter2d/staged_kernel.cuh"
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"

namespace sluice {

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked, cudaStream_t stream) {
  const Filter2dArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  switch (plan.schedule) {
    case Schedule::sync: return launch(staged_filter2d_kernel<Element, TilePipe<SyncPipe>>);
    case Schedule::multi_stage: return launch(staged_filter2d_kernel<Element, TilePipe<MultiStagePipe>>);
    case Schedule::thread_scope: return launch(staged_filter2d_kernel<Element, TilePipe<ThreadScopePipe>>);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace sluice
