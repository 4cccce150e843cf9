// Fills in a kernel's arguments. The launchers are in launch_<kind>.cuh.
#pragma once

#include "kernels/operators/transform/arguments.cuh"
#include "kernels/operators/transform/launch.h"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {

template <class Element, Walk walk>
TransformArguments<Element, walk> make_arguments(const TransformParams& params, const TransformPlan& plan) {
  constexpr int kWidth = kWordElements<Element>;
  TransformArguments<Element, walk> a;
  a.input = params.input.template as<const Element>();
  a.output = params.output.data;
  a.output_dtype = params.output.dtype;
  a.rank = params.rank;
  a.depth = plan.depth;
  a.schedule = plan.schedule;
  const TransformProblem& problem = plan.problem;
  a.shift = static_cast<int>(
      (reinterpret_cast<std::uintptr_t>(params.input.data) - problem.misalignment * sizeof(Element)) % kWordBytes);
  a.rows_equally_aligned = true;
  a.input_extent = 1;
  for (int d = 0; d < params.rank; ++d) {
    a.sizes[d] = params.sizes[d];
    a.input_strides[d] = params.input.strides[d];
    a.output_strides[d] = params.output.strides[d];
    a.input_extent += (params.sizes[d] - 1) * params.input.strides[d];
    if (!a.kFlat) a.divisors[d] = FastDivisor(params.sizes[d]);
    a.rows_equally_aligned =
        a.rows_equally_aligned &&
        (d == 0 || (params.input.strides[d] % kWidth == 0 && params.output.strides[d] % kWidth == 0));
  }
  a.shares = a.shift != 0 || !a.rows_equally_aligned;
  a.rows = problem.rows();
  a.vectors_per_row = problem.vectors_per_row();
  a.tiles_per_row = ceil_div<long long>(a.vectors_per_row, plan.tile / kWidth);
  a.misalignment_of_all = problem.misalignment;
  a.first_whole = problem.misalignment != 0 || a.shift != 0;
  a.last_whole = (problem.inner + problem.misalignment) / kWidth - (a.shift != 0);
  a.vectors_divisor = FastDivisor(a.vectors_per_row);
  a.tiles_divisor = FastDivisor(a.tiles_per_row);
  a.chain = make_chain_arguments<Compute<Element>, TransformArguments<Element, walk>::kRank>(
      params.program, params.operands, params.rank, params.sizes);
  return a;
}

template <class Element>
cudaError_t launch_direct(const TransformParams& params, const TransformPlan& plan, const void* linked,
                          cudaStream_t stream);

template <class Element>
cudaError_t launch_staged(const TransformParams& params, const TransformPlan& plan, const void* linked,
                          cudaStream_t stream);

}  // namespace sluice
