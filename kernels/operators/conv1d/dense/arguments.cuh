// The dense kernel's arguments and its shared-memory layout.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/dense/groups.h"
#include "kernels/operators/conv1d/dense/input_map.h"
#include "kernels/operators/conv1d/dense/policy.h"
#include "kernels/operators/conv1d/dense/residues.h"
#include "kernels/operators/conv1d/dense/splits.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/mma/swizzle.h"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/pipeline/mbarrier.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"

namespace sluice {

struct DenseArguments {
  static constexpr bool kJoinsSplits = false;   // whether tiles may be split (splits.h)
  static constexpr bool kKeepsSingles = false;  // whether float32 is rounded by the products, not in stages

  Operand<3> input, output;
  Operand<1> bias;
  const char* packed;      // the weight in PackedOrder
  long long input_extent;  // elements from `input` to its end: all may be read
  int input_channels, channels, length, output_length;
  int taps, dilation;
  int padding;  // positions on the left
  int shift;    // rows of a stage before the first output's first tap, so that vectors of positions are aligned
  DenseFetch fetch;
  bool is_converted;     // the previous kernel in the stream converts the input, and has waited for the packed weight
  bool whole_vectors;    // vectors of the result are contiguous, and of the input's dtype
  bool aligned_vectors;  // vectors of the result are aligned to 16 bytes

  int k_blocks, k_block;          // input channels of a k-block
  int row_bytes;                  // a shared-memory row: the k-block of a position or of an output channel
  int stage_rows, input_stages;   // rows of a stage, and stages, of the ring of input tiles
  int stage_taps, weight_stages;  // taps of a stage, and stages, of the ring of weights
  bool resident;                  // all weights have their own stages and stay in them
  int packed_rows;                // output channels of the packed weight, a multiple of 8
  int parts;                      // tiles of an input stage, and of a tap's weights; 2: of high and of low parts
  bool is_pingpong;               // the warpgroups take whole tiles alternately instead of half of each
  int tile_positions;
  int tiles;
  FastDivisor by_channel_tiles, by_position_tiles;
  ChainArguments<float, 3> pre, post;
  InputMap map;

  SLUICE_HOST_DEVICE int input_steps() const { return k_blocks; }  // stages of a tile
  SLUICE_HOST_DEVICE int weight_stages_of_tile() const { return k_blocks * ceil_div(taps, stage_taps); }  // likewise
  SLUICE_HOST_DEVICE int input_part_bytes() const { return round_up(stage_rows * row_bytes, kTileAlignment); }
  SLUICE_HOST_DEVICE int input_stage_bytes() const { return parts * input_part_bytes(); }
  SLUICE_HOST_DEVICE int raw_bytes() const { return dense_raw_bytes(fetch); }
  SLUICE_HOST_DEVICE int weight_stage_bytes(int tile_channels) const {
    return stage_taps * parts * tile_channels * row_bytes;
  }

  // Overridden below for a stride (residues.h).
  SLUICE_HOST_DEVICE static constexpr int stride() { return 1; }
  SLUICE_HOST_DEVICE static constexpr int residues() { return 1; }
  SLUICE_HOST_DEVICE int taps_of(int) const { return taps; }
  SLUICE_HOST_DEVICE static constexpr int tap_step() { return 1; }
  SLUICE_HOST_DEVICE int row_step() const { return dilation; }
  SLUICE_HOST_DEVICE int first_row(int) const { return shift; }  // the row that a residue's first tap reads
  // Whether a residue is the first, or the last, of its stage.
  SLUICE_HOST_DEVICE static constexpr bool begins_stage(int) { return true; }
  SLUICE_HOST_DEVICE static constexpr bool ends_stage(int) { return true; }
  // A stage's first input position; input elements from a row to the next; positions that the rows span.
  SLUICE_HOST_DEVICE int input_position(int position, int) const { return position - padding - shift; }
  SLUICE_HOST_DEVICE long long row_pitch() const { return input.strides[2]; }
  SLUICE_HOST_DEVICE int row_reach() const { return stage_rows; }
  // Positions that are transposed into a stage, and the row of each; -1 where no tap reads it.
  SLUICE_HOST_DEVICE int stage_positions() const { return stage_rows; }
  SLUICE_HOST_DEVICE static int row_of(int index) { return index; }
  SLUICE_HOST_DEVICE static constexpr bool has_unread_positions() { return false; }
  // Overridden for groups: a group's first input channel, and the ends of its output channels and packed rows.
  SLUICE_HOST_DEVICE static constexpr int first_input_channel(int) { return 0; }
  SLUICE_HOST_DEVICE int channels_end(int) const { return channels; }
  SLUICE_HOST_DEVICE int packed_end(int) const { return packed_rows; }
  // Overridden for split-K, where the index is a split instead of a group (splits.h).
  SLUICE_HOST_DEVICE int input_channels_of(int) const { return input_channels; }
  SLUICE_HOST_DEVICE int k_blocks_of(int) const { return k_blocks; }
  SLUICE_HOST_DEVICE static constexpr int first_k_block(int) { return 0; }
  // Steps of 32 bytes that a row's products take; 0: all.
  SLUICE_HOST_DEVICE static constexpr int partial_steps() { return 0; }
};

// Any stride, groups and splits. New members go last, so base offsets and the stride-1 kernels' code do not change.
struct GeneralDenseArguments : DenseArguments {
  static constexpr bool kJoinsSplits = true;

  TapResidues own;
  int positions_of_stage;
  int tile_weight_stages;
  DenseGroups groups;
  int steps_of_row;
  DenseSplits splits;

  SLUICE_HOST_DEVICE int input_steps() const { return k_blocks * own.stages(); }
  SLUICE_HOST_DEVICE int weight_stages_of_tile() const { return tile_weight_stages; }
  SLUICE_HOST_DEVICE int stride() const { return own.stride; }
  SLUICE_HOST_DEVICE int residues() const { return own.count; }
  SLUICE_HOST_DEVICE int taps_of(int residue) const { return own.taps_of(residue); }
  SLUICE_HOST_DEVICE int tap_step() const { return own.tap_step; }
  SLUICE_HOST_DEVICE int row_step() const { return own.row_step; }
  SLUICE_HOST_DEVICE int first_row(int residue) const { return own.first_row(residue); }
  SLUICE_HOST_DEVICE bool begins_stage(int residue) const { return residue == 0 || !own.are_together(); }
  SLUICE_HOST_DEVICE bool ends_stage(int residue) const { return residue == own.count - 1 || !own.are_together(); }
  SLUICE_HOST_DEVICE int input_position(int position, int residue) const {
    return own.first_position(position, residue) - padding - shift;
  }
  SLUICE_HOST_DEVICE long long row_pitch() const { return own.stride * input.strides[2]; }
  SLUICE_HOST_DEVICE int row_reach() const { return (stage_rows - 1) * own.stride + 1; }
  SLUICE_HOST_DEVICE int stage_positions() const { return positions_of_stage; }
  SLUICE_HOST_DEVICE int row_of(int index) const { return own.row_of(index - shift); }
  SLUICE_HOST_DEVICE static constexpr bool has_unread_positions() { return true; }
  SLUICE_HOST_DEVICE int group_of(int group_or_split) const { return splits.exist() ? 0 : group_or_split; }
  SLUICE_HOST_DEVICE int first_input_channel(int group_or_split) const {
    return splits.exist() ? first_k_block(group_or_split) * k_block : groups.first_input(group_or_split);
  }
  SLUICE_HOST_DEVICE int channels_end(int group_or_split) const { return groups.end(group_of(group_or_split)); }
  SLUICE_HOST_DEVICE int packed_end(int group_or_split) const { return groups.packed_end(group_of(group_or_split)); }
  SLUICE_HOST_DEVICE int input_channels_of(int group_or_split) const {
    return splits.exist() ? input_channels - first_input_channel(group_or_split) : input_channels;
  }
  SLUICE_HOST_DEVICE int k_blocks_of(int group_or_split) const {
    return splits.exist() ? splits.k_blocks_of(group_or_split, k_blocks) : k_blocks;
  }
  SLUICE_HOST_DEVICE int first_k_block(int group_or_split) const {
    return splits.exist() ? splits.first_k_block(group_or_split) : 0;
  }
  SLUICE_HOST_DEVICE int partial_steps() const { return steps_of_row; }
};

// Shared memory: input stages, weight stages, raw tiles, then this.
struct DenseShared {
  float epilogue[kDenseConsumerWarps][kEpilogueFloats];  // a warp's epilogue tile
  float bias[2][kMostDenseChannels];                     // bias of each consuming warpgroup's tile
  std::uint64_t input_full[kMostInputStages], input_empty[kMostInputStages];
  std::uint64_t input_copied[kMostInputStages];  // barriers of copies by a tensor map, which are changed in place
  std::uint64_t weight_full[kMostWeightStages], weight_empty[kMostWeightStages];
};

// One tile of the result.
struct DenseTile {
  int batch, position, channel;  // indices of the tile's first element
  int group_or_split = 0;        // split-K has one group: 0 is a tile that is not split, 1 its first split
};

// `channels`: output channels of a tile.
__device__ __forceinline__ DenseTile dense_tile(const DenseArguments& a, int tile, int channels) {
  const int upper = static_cast<int>(a.by_channel_tiles.quotient_of_31_bits(tile));
  const int batch = static_cast<int>(a.by_position_tiles.quotient_of_31_bits(upper));
  return {batch, (upper - batch * static_cast<int>(a.by_position_tiles.divisor)) * a.tile_positions,
          (tile - upper * static_cast<int>(a.by_channel_tiles.divisor)) * channels};
}

// A tile of channels is in one group.
__device__ __forceinline__ DenseTile dense_tile(const GeneralDenseArguments& a, int index, int channels) {
  const bool has_splits = a.splits.exist();
  const int tile = has_splits ? a.splits.tile_of(index) : index;
  DenseTile found = dense_tile(static_cast<const DenseArguments&>(a), tile, channels);
  if (has_splits) {
    found.group_or_split = a.splits.split_of(index);
    return found;
  }
  const int channel_tile = found.channel / channels;
  found.group_or_split = a.groups.group_of(channel_tile);
  found.channel = a.groups.first_channel(channel_tile, channels);
  return found;
}

// The order in which a tile's taps are summed: k-block by k-block, and within one residue by residue.
struct ResidueStep {
  int k_block = 0, residue = 0;

  template <class Arguments>
  __device__ __forceinline__ void advance(const Arguments& a) {
    if (++residue == a.residues()) residue = 0, ++k_block;
  }
};

// A stage of a ring, and the parity of the mbarrier's phase in which it is used.
struct PipelineState {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void advance(int stages, int steps) {
    for (stage += steps; stage >= stages; stage -= stages) parity ^= 1;
  }
};

inline void fill(DenseArguments& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  const long long inputs[3] = {params.batch, params.dense.groups * params.dense.input_channels, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  long long extent = 1;
  for (int d = 0; d < 3; ++d) extent += (inputs[d] - 1) * params.input.strides[d];
  a = {
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
      .is_converted = own.converts_input,
      .whole_vectors =
          params.output.dtype == params.input.dtype && params.output.strides[own.by_positions ? 2 : 1] == 1,
      .aligned_vectors = has_words(params.output, outputs, own.by_positions ? 2 : 1),
      .k_blocks = own.k_blocks,
      .k_block = own.k_block(),
      .row_bytes = own.row_bytes(),
      .stage_rows = own.stage_rows,
      .input_stages = own.input_stages,
      .stage_taps = own.stage_taps,
      .weight_stages = own.weight_stages,
      .resident = own.resident,
      .packed_rows = static_cast<int>(own.order.rows),
      .parts = own.order.parts,
      .is_pingpong = own.is_pingpong,
      .tile_positions = own.positions(),
      .tiles = static_cast<int>(own.tiles),
      .by_channel_tiles = FastDivisor(own.channel_tiles),
      .by_position_tiles = FastDivisor(own.position_tiles),
      .pre = make_chain_arguments<float, 3>(params.pre, params.pre_operands, 3, inputs),
      .post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, outputs),
      .map = make_input_map(params.input, inputs, own),
  };
}

inline void fill(GeneralDenseArguments& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  fill(static_cast<DenseArguments&>(a), params, plan);
  a.own = own.residues;
  a.positions_of_stage = own.stage_positions;
  a.tile_weight_stages = own.weight_stages_of_tile();
  a.groups = dense_groups(params.dense.groups, params.dense.groups * params.dense.input_channels, params.channels,
                          own.channels());
  a.steps_of_row = own.partial_steps();
  a.splits = {};
  if (own.splits > 1) a.splits = dense_splits(own, params.dense.sums);
}

}  // namespace sluice
