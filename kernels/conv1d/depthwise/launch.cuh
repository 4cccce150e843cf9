// Fills in a kernel's arguments. The launchers are in launch_<kind>.cuh, of which CMakeLists.txt makes instances.
#pragma once

#include "kernels/conv1d/depthwise/arguments.cuh"
#include "kernels/conv1d/launch.h"
#include "kernels/pipeline/launch.cuh"

namespace sluice {

template <class Element>
Conv1dArguments<Element> make_arguments(const Conv1dParams& params, const Conv1dPlan& plan) {
  Conv1dArguments<Element> a;
  a.input = static_cast<const Element*>(params.input);
  a.weight = params.weight;
  a.bias = params.bias;
  a.history = params.history;
  a.output = params.output;
  a.weight_dtype = params.weight_dtype;
  a.bias_dtype = params.bias_dtype;
  a.history_dtype = params.history_dtype;
  a.output_dtype = params.output_dtype;
  a.batch = params.batch;
  a.channels = params.channels;
  a.length = params.length;
  a.output_length = params.output_length;
  a.multiplier = params.multiplier;
  a.taps = params.taps;
  a.stride = params.stride;
  a.padding = params.padding;
  a.dilation = params.dilation;
  for (int d = 0; d < 3; ++d) {
    a.input_strides[d] = params.input_strides[d];
    a.output_strides[d] = params.output_strides[d];
    a.history_strides[d] = params.history_strides[d];
  }
  for (int d = 0; d < 2; ++d) a.weight_strides[d] = params.weight_strides[d];
  a.bias_stride = params.bias_stride;
  a.depth = plan.depth;
  const DepthwisePlan& own = plan.depthwise;
  a.stage_words = own.stage_words;
  a.tap_bytes = own.tap_bytes;
  a.tiles = own.tiles;
  a.vectors_per_row = own.vectors_per_row;
  a.by_channels = FastDivisor(params.channels);
  // Of the vectors of a row, where a thread finds its own; of its tiles, where a block does.
  a.by_vectors = FastDivisor(plan.schedule == Schedule::direct ? max_of(1LL, own.vectors_per_row) : own.tiles_per_row);
  a.by_multiplier = FastDivisor(params.multiplier);
  a.lanes = own.lanes;
  a.rows_per_block = plan.threads / a.lanes;
  a.vectors_per_thread = own.vectors_per_thread;
  a.dense_weight = params.weight_dtype == params.input_dtype && params.weight_strides[1] == 1 &&
                   params.weight_strides[0] == params.taps &&
                   reinterpret_cast<std::uintptr_t>(params.weight) % (4 * sizeof(Element)) == 0;
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
cudaError_t launch_staged_rows(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream);

template <class Element>
cudaError_t launch_staged_channels(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                                   cudaStream_t stream);

}  // namespace sluice
