// Fills in a kernel's arguments and launches it, for one element type. Each dtype's instances are a
// file of their own (transform_<dtype>.cu), so that no single compilation is long.
#pragma once

#include "kernels/common/launch.cuh"
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
#include "kernels/transform/direct_kernel.cuh"
#include "kernels/transform/launch.h"
#include "kernels/transform/staged_kernel.cuh"

namespace sluice {

template <class Element, Walk walk>
TransformArguments<Element, walk> make_arguments(const TransformParams& params, const Plan& plan) {
  constexpr int kWidth = kWordElements<Element>;
  TransformArguments<Element, walk> a;
  a.input = static_cast<const Element*>(params.input);
  a.output = params.output;
  a.output_dtype = params.output_dtype;
  a.rank = params.rank;
  a.depth = plan.depth;
  const TransformProblem problem = problem_of(params);
  a.shift =
      static_cast<int>((reinterpret_cast<std::uintptr_t>(params.input) - problem.misalignment * sizeof(Element)) % kWordBytes);
  a.rows_alike = true;
  a.input_extent = 1;
  for (int d = 0; d < params.rank; ++d) {
    a.sizes[d] = params.sizes[d];
    a.input_strides[d] = params.input_strides[d];
    a.output_strides[d] = params.output_strides[d];
    a.input_extent += (params.sizes[d] - 1) * params.input_strides[d];
    if (!a.kFlat) a.divisors[d] = FastDivisor(params.sizes[d]);
    a.rows_alike = a.rows_alike && (d == 0 || (params.input_strides[d] % kWidth == 0 && params.output_strides[d] % kWidth == 0));
  }
  a.shares = a.shift != 0 || !a.rows_alike;
  a.rows = problem.rows();
  a.vectors_per_row = problem.vectors_per_row();
  a.tiles_per_row = ceil_div<long long>(a.vectors_per_row, plan.tile / kWidth);
  a.misalignment_of_all = problem.misalignment;
  a.first_whole = problem.misalignment != 0 || a.shift != 0;
  a.last_whole = (problem.inner + problem.misalignment) / kWidth - (a.shift != 0);
  a.vectors_divisor = FastDivisor(a.vectors_per_row);
  a.tiles_divisor = FastDivisor(a.tiles_per_row);
  a.chain = make_chain_arguments<Compute<Element>, TransformArguments<Element, walk>::kRank>(params.program, params.operands,
                                                                                             params.rank, params.sizes);
  return a;
}

template <class Element, Walk walk>
cudaError_t launch_walk(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  const TransformArguments<Element, walk> a = make_arguments<Element, walk>(params, plan);
  const auto launch = [&](auto kernel) { return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a); };
  if (linked != nullptr) return launch(linked);
  if (plan.schedule == Schedule::direct) {
    if constexpr (walk == Walk::flat) {
      if (params.program.operands == 0) return launch(direct_transform_kernel<Element, walk, false>);
    }
    return launch(direct_transform_kernel<Element, walk, true>);
  }
  if constexpr (walk != Walk::rows) {
    switch (plan.schedule) {
      case Schedule::direct: break;
      case Schedule::sync: return launch(staged_transform_kernel<Element, walk, SyncPipe>);
      case Schedule::multi_stage: return launch(staged_transform_kernel<Element, walk, MultiStagePipe>);
      case Schedule::thread_scope: return launch(staged_transform_kernel<Element, walk, ThreadScopePipe>);
    }
  }
  return cudaErrorInvalidValue;
}

template <class Element>
cudaError_t launch_transform_as(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  const Walk walk = problem_of(params).walk;
  if (walk == Walk::flat) return launch_walk<Element, Walk::flat>(params, plan, linked, stream);
  if (walk == Walk::rows && plan.schedule == Schedule::direct)
    return launch_walk<Element, Walk::rows>(params, plan, linked, stream);
  return launch_walk<Element, Walk::strided>(params, plan, linked, stream);
}

}  // namespace sluice
