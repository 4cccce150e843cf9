// Fills in a kernel's arguments and launches it, for one element type. Each dtype's instances are a
// file of their own (transform_<dtype>.cu), so that no single compilation is long.
#pragma once

#include "kernels/common/launch.cuh"
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
#include "kernels/transform/launch.h"
#include "kernels/transform/transform_kernel.cuh"

namespace sluice {

template <class Element>
TransformArguments<Element> make_arguments(const TransformParams& params, const Plan& plan) {
  constexpr int kWidth = kWordElements<Element>;
  TransformArguments<Element> a;
  a.input = static_cast<const Element*>(params.input);
  a.output = params.output;
  a.output_dtype = params.output_dtype;
  a.rank = params.rank;
  a.depth = plan.depth;
  const TransformProblem problem = problem_of(params);
  const auto misaligned = (reinterpret_cast<std::uintptr_t>(params.input) - problem.misalignment * sizeof(Element)) % kWordBytes;
  a.shares = misaligned != 0;
  for (int d = 0; d < params.rank; ++d) {
    a.sizes[d] = params.sizes[d];
    a.input_strides[d] = params.input_strides[d];
    a.output_strides[d] = params.output_strides[d];
    a.shares = a.shares || (d > 0 && (params.input_strides[d] % kWidth != 0 || params.output_strides[d] % kWidth != 0));
  }
  a.rows = problem.elements / problem.inner;
  a.vectors_per_row = ceil_div<long long>(problem.inner + (a.rows > 1 ? kWidth - 1 : problem.misalignment), kWidth);
  a.tiles_per_row = ceil_div<long long>(a.vectors_per_row, kTransformThreads * kTransformGroups<Element>);
  a.chain = make_chain_arguments<Compute<Element>>(params.program, params.operands);
  return a;
}

template <class Element>
cudaError_t launch_transform_as(const TransformParams& params, const Plan& plan, cudaStream_t stream) {
  const TransformArguments<Element> a = make_arguments<Element>(params, plan);
  const auto launch = [&](auto* kernel) {
    return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a);
  };
  switch (plan.schedule) {
    case Schedule::direct: return launch(direct_transform_kernel<Element>);
    case Schedule::sync: return launch(staged_transform_kernel<Element, SyncPipe>);
    case Schedule::multi_stage: return launch(staged_transform_kernel<Element, MultiStagePipe>);
    case Schedule::thread_scope: return launch(staged_transform_kernel<Element, ThreadScopePipe>);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sluice
