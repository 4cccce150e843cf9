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

template <class Element, bool Flat>
TransformArguments<Element, Flat> make_arguments(const TransformParams& params, const Plan& plan) {
  constexpr int kWidth = kWordElements<Element>;
  TransformArguments<Element, Flat> a;
  a.input = static_cast<const Element*>(params.input);
  a.output = params.output;
  a.output_dtype = params.output_dtype;
  a.rank = params.rank;
  a.depth = plan.depth;
  const TransformProblem problem = problem_of(params);
  a.first_misalignment = problem.misalignment;
  const auto misaligned = (reinterpret_cast<std::uintptr_t>(params.input) - problem.misalignment * sizeof(Element)) % kWordBytes;
  a.shares = misaligned != 0;
  a.shift = static_cast<int>(misaligned);
  for (int d = 0; d < params.rank; ++d) {
    a.sizes[d] = params.sizes[d];
    if (!Flat) a.divisors[d] = FastDivisor(params.sizes[d]);
    a.input_strides[d] = params.input_strides[d];
    a.output_strides[d] = params.output_strides[d];
    a.shares = a.shares || (d > 0 && (params.input_strides[d] % kWidth != 0 || params.output_strides[d] % kWidth != 0));
  }
  a.rows = problem.elements / problem.inner;
  a.vectors_per_row = ceil_div<long long>(problem.inner + (a.rows > 1 ? kWidth - 1 : problem.misalignment), kWidth);
  a.tiles_per_row = ceil_div<long long>(a.vectors_per_row, kTransformThreads * kTransformGroups<Element>);
  a.vectors_divisor = FastDivisor(a.vectors_per_row);
  a.tiles_divisor = FastDivisor(a.tiles_per_row);
  a.first_whole = problem.misalignment != 0 || misaligned != 0;
  a.last_whole = (problem.inner + problem.misalignment) / kWidth - (misaligned != 0);
  a.chain = make_chain_arguments<Compute<Element>>(params.program, params.operands);
  return a;
}

template <class Element, bool Flat>
cudaError_t launch_geometry(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  const TransformArguments<Element, Flat> a = make_arguments<Element, Flat>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  switch (plan.schedule) {
    case Schedule::direct:
      if (Flat && params.program.operands == 0) return launch(direct_transform_kernel<Element, Flat, !Flat>);
      return launch(direct_transform_kernel<Element, Flat, true>);
    case Schedule::sync: return launch(staged_transform_kernel<Element, Flat, SyncPipe>);
    case Schedule::multi_stage: return launch(staged_transform_kernel<Element, Flat, MultiStagePipe>);
    case Schedule::thread_scope: return launch(staged_transform_kernel<Element, Flat, ThreadScopePipe>);
  }
  return cudaErrorInvalidValue;
}

template <class Element>
cudaError_t launch_transform_as(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  return is_flat(params) ? launch_geometry<Element, true>(params, plan, linked, stream)
                         : launch_geometry<Element, false>(params, plan, linked, stream);
}

}  // namespace sluice
