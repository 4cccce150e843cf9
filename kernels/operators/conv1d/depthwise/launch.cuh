// Fills in a kernel's arguments. The launchers are in launch_<kind>.cuh.
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/operators/conv1d/launch.h"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {

template <class Element>
Conv1dArguments<Element> make_arguments(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DepthwisePlan& own = plan.depthwise;
  Conv1dArguments<Element> a{params, own};
  a.depth = plan.depth;
  a.schedule = plan.schedule;
  a.by_channels = FastDivisor(params.channels);
  // Vectors of a row, if a thread finds its own; tiles of a row, if a block does.
  a.by_vectors = FastDivisor(plan.schedule == Schedule::direct ? max_of(1LL, own.vectors_per_row) : own.tiles_per_row);
  a.by_multiplier = FastDivisor(params.multiplier);
  a.rows_per_block = plan.threads / a.lanes;
  a.contiguous_weight = params.weight.dtype == params.input.dtype && params.weight.strides[1] == 1 &&
                        params.weight.strides[0] == params.taps &&
                        reinterpret_cast<std::uintptr_t>(params.weight.data) % (4 * sizeof(Element)) == 0;
  a.by_lanes = FastDivisor(a.lanes);
  a.by_across = FastDivisor(takes_channels(own.which) ? own.channel_tiles : own.tiles_per_row);
  a.by_along = FastDivisor(own.position_tiles);
  const long long inputs[3] = {params.batch, params.channels / params.multiplier, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  a.pre = make_chain_arguments<Compute<Element>, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<Compute<Element>, 3>(params.post, params.post_operands, 3, outputs);
  return a;
}

template <class Element>
cudaError_t launch_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream);

template <class Element>
cudaError_t launch_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                            cudaStream_t stream);

template <class Element>
cudaError_t launch_windows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream);

template <class Element>
cudaError_t launch_staged_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

template <class Element>
cudaError_t launch_staged_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                                   cudaStream_t stream);

}  // namespace sluice
