// Fills in the dense kernel's arguments and launches it for one tile.
#pragma once

#include "kernels/operators/conv1d/dense/dense.cuh"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

static_assert(sizeof(DenseShared) <= kDenseSharedBytes);

inline DenseArguments make_dense_arguments(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  const long long inputs[3] = {params.batch, params.dense.groups * params.dense.input_channels, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  long long extent = 1;
  for (int d = 0; d < 3; ++d) extent += (inputs[d] - 1) * params.input.strides[d];
  return {
      .input = params.input,
      .output = params.output,
      .bias = params.bias,
      .packed = static_cast<const char*>(params.dense.packed),
      .input_extent = extent,
      .input_channels = static_cast<int>(params.dense.input_channels),
      .channels = static_cast<int>(params.channels),
      .length = static_cast<int>(params.length),
      .output_length = static_cast<int>(params.output_length),
      .taps = params.taps,
      .dilation = static_cast<int>(params.dilation),
      .padding = static_cast<int>(params.padding),
      .shift = own.shift,
      .fetch = own.fetch,
      .whole_vectors =
          params.output.dtype == params.input.dtype && params.output.strides[own.by_positions ? 2 : 1] == 1,
      .aligned_vectors = has_words(params.output, outputs, own.by_positions ? 2 : 1),
      .k_blocks = own.order.k_blocks,
      .row_bytes = own.order.row_bytes(),
      .stage_rows = own.stage_rows,
      .input_stages = own.input_stages,
      .stage_taps = own.stage_taps,
      .weight_stages = own.weight_stages,
      .resident = own.resident,
      .packed_rows = static_cast<int>(own.order.rows),
      .is_pingpong = own.is_pingpong,
      .tile_positions = own.positions(),
      .tiles = static_cast<int>(own.tiles),
      .by_channel_tiles = FastDivisor(own.channel_tiles),
      .by_position_tiles = FastDivisor(own.position_tiles),
      .pre = make_chain_arguments<float, 3>(params.pre, params.pre_operands, 3, inputs),
      .post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, outputs),
  };
}

inline GeneralDenseArguments make_general_arguments(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  const int splits = own.splits;
  const DenseGroups groups = splits > 1
                                 ? dense_groups(splits, splits * own.k_blocks_of_tile() * own.order.k_block,
                                                splits * params.channels, own.tile().channels)
                                 : dense_groups(params.dense.groups, params.dense.groups * params.dense.input_channels,
                                                params.channels, own.tile().channels);
  return {make_dense_arguments(params, plan),
          own.residues,
          own.stage_positions,
          own.weight_stages_of_tile(),
          groups,
          own.partial_steps(),
          splits > 1 ? own.k_blocks_of_tile() : 0};
}

// Without `linked` the params have no chains: interpreting them would take the registers that hold the sums.
template <class Element, int Blocks, int Channels, class Arguments>
cudaError_t launch_with(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream,
                        const Arguments& arguments) {
  if (linked == nullptr && !(params.pre.empty() && params.post.empty())) return cudaErrorNotSupported;
  const auto interpreted = [&]() -> Kernel<Arguments> {
    return plan.dense.by_positions ? dense_kernel<NoChains, Element, Blocks, Channels, true, Arguments>
                                   : dense_kernel<NoChains, Element, Blocks, Channels, false, Arguments>;
  };
  // The input is fetched while the weight is packed.
  return launch_planned(plan, linked, stream, arguments, interpreted,
                        params.dense.follows_pack ? Start::beside : Start::behind);
}

template <class Element, int Blocks, int Channels>
cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  return launch_with<Element, Blocks, Channels>(params, plan, linked, stream, make_dense_arguments(params, plan));
}

}  // namespace sluice
