// What the dense kernel is given, and where things lie in its shared memory.
#pragma once

#include "kernels/common/fast_divide.h"
#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/dense/groups.h"
#include "kernels/conv1d/dense/phases.h"
#include "kernels/conv1d/dense/policy.h"
#include "kernels/mma/swizzle.h"
#include "kernels/pipeline/mbarrier.cuh"
#include "kernels/stages/epilogue.cuh"
#include "kernels/stages/interpreter.cuh"
#include "kernels/stages/linked_chain.cuh"

namespace sluice {

struct DenseArguments {
  Operand<3> input, output;
  Operand<1> bias;
  const char* packed;      // the weight: [chunk][tap][output channel][input channel of the chunk], rows swizzled
  long long input_extent;  // elements from `input` to the end of the last one: all may be read
  int input_channels, channels, length, output_length;
  int taps, dilation;
  int padding;  // on the left
  int shift;    // rows of a stage ahead of the first output's first tap: where vectors of positions begin
  DenseFetch fetch;
  bool whole_vectors;    // of the result: each has the input's type and lies in one run of memory
  bool aligned_vectors;  // and begins at 16 bytes

  int chunks, row_bytes;          // a row of shared memory is a position's, or an output channel's, chunk of channels
  int stage_rows, input_stages;   // of the ring of input tiles
  int stage_taps, weight_stages;  // of the ring of weights
  bool resident;                  // all weights have a stage of their own and stay there
  int packed_rows;                // output channels of the packed weight, a multiple of 8
  bool alternates;                // the warpgroups take tiles in turn, instead of half of each
  int tile_positions;
  int tiles;
  FastDivisor by_channel_tiles, by_position_tiles;
  ChainArguments<float, 3> pre, post;

  SLUICE_HOST_DEVICE int chunk() const { return row_bytes / 2; }
  SLUICE_HOST_DEVICE int input_steps() const { return chunks; }                                 // stages of a tile
  SLUICE_HOST_DEVICE int weight_groups() const { return chunks * ceil_div(taps, stage_taps); }  // likewise
  SLUICE_HOST_DEVICE int input_stage_bytes() const { return round_up(stage_rows * row_bytes, kTileAlignment); }
  SLUICE_HOST_DEVICE int raw_bytes() const { return dense_raw_bytes(fetch); }
  SLUICE_HOST_DEVICE int weight_stage_bytes(int tile_channels) const { return stage_taps * tile_channels * row_bytes; }

  // What a stride makes different (below, and phases.h).
  SLUICE_HOST_DEVICE static constexpr int stride() { return 1; }
  SLUICE_HOST_DEVICE static constexpr int phases() { return 1; }
  SLUICE_HOST_DEVICE int taps_of(int) const { return taps; }
  SLUICE_HOST_DEVICE static constexpr int tap_step() { return 1; }
  SLUICE_HOST_DEVICE int row_step() const { return dilation; }
  SLUICE_HOST_DEVICE int first_row(int) const { return shift; }  // of a phase's first tap
  // Whether a phase is the first or the last one of its stage.
  SLUICE_HOST_DEVICE static constexpr bool begins_stage(int) { return true; }
  SLUICE_HOST_DEVICE static constexpr bool ends_stage(int) { return true; }
  // Of the input, where a stage's rows begin; elements from a row to the next; positions that rows reach over.
  SLUICE_HOST_DEVICE int input_position(int position, int) const { return position - padding - shift; }
  SLUICE_HOST_DEVICE long long row_pitch() const { return input.strides[2]; }
  SLUICE_HOST_DEVICE int row_reach() const { return stage_rows; }
  // Positions that a stage is transposed from, and the row of each; -1 of those that no tap reads.
  SLUICE_HOST_DEVICE int stage_positions() const { return stage_rows; }
  SLUICE_HOST_DEVICE static int row_of(int index) { return index; }
  SLUICE_HOST_DEVICE static constexpr bool has_unread_positions() { return false; }
  // What groups make different: the first input channel of one, and the ends of its output channels, there and packed.
  SLUICE_HOST_DEVICE static constexpr int first_input_channel(int) { return 0; }
  SLUICE_HOST_DEVICE int channels_end(int) const { return channels; }
  SLUICE_HOST_DEVICE int packed_end(int) const { return packed_rows; }
  // What a sum that is split over parts of the input channels makes different: a part stands where a group does.
  SLUICE_HOST_DEVICE int input_channels_of(int) const { return input_channels; }
  SLUICE_HOST_DEVICE int chunks_of(int) const { return chunks; }
  SLUICE_HOST_DEVICE static constexpr int first_chunk(int) { return 0; }
  SLUICE_HOST_DEVICE static constexpr int first_packed_channel(int) { return 0; }
  // Of 16 input channels a row; 0: all of it.
  SLUICE_HOST_DEVICE static constexpr int partial_steps() { return 0; }
};

// The same of any stride, any groups and any parts of the sum. What it adds stands behind all else, which is where it
// was.
struct GeneralDenseArguments : DenseArguments {
  DensePhases own;
  int positions_of_stage;
  int weight_groups_of_tile;
  DenseGroups groups;
  int steps_of_row;
  int chunks_of_part;  // 0: groups are groups

  SLUICE_HOST_DEVICE int input_steps() const { return chunks * own.stages(); }
  SLUICE_HOST_DEVICE int weight_groups() const { return weight_groups_of_tile; }
  SLUICE_HOST_DEVICE int stride() const { return own.stride; }
  SLUICE_HOST_DEVICE int phases() const { return own.phases; }
  SLUICE_HOST_DEVICE int taps_of(int phase) const { return own.taps_of(phase); }
  SLUICE_HOST_DEVICE int tap_step() const { return own.tap_step; }
  SLUICE_HOST_DEVICE int row_step() const { return own.row_step; }
  SLUICE_HOST_DEVICE int first_row(int phase) const { return own.first_row(phase); }
  SLUICE_HOST_DEVICE bool begins_stage(int phase) const { return phase == 0 || !own.are_together(); }
  SLUICE_HOST_DEVICE bool ends_stage(int phase) const { return phase == own.phases - 1 || !own.are_together(); }
  SLUICE_HOST_DEVICE int input_position(int position, int phase) const {
    return own.first_position(position, phase) - padding - shift;
  }
  SLUICE_HOST_DEVICE long long row_pitch() const { return own.stride * input.strides[2]; }
  SLUICE_HOST_DEVICE int row_reach() const { return (stage_rows - 1) * own.stride + 1; }
  SLUICE_HOST_DEVICE int stage_positions() const { return positions_of_stage; }
  SLUICE_HOST_DEVICE int row_of(int index) const { return own.row_of(index - shift); }
  SLUICE_HOST_DEVICE static constexpr bool has_unread_positions() { return true; }
  SLUICE_HOST_DEVICE int first_input_channel(int group) const { return groups.first_input(group); }
  SLUICE_HOST_DEVICE int channels_end(int group) const { return groups.end(group); }
  SLUICE_HOST_DEVICE int packed_end(int group) const {
    return is_split() ? first_packed_channel(group) + packed_rows : groups.packed_end(group);
  }
  SLUICE_HOST_DEVICE bool is_split() const { return chunks_of_part > 0; }
  SLUICE_HOST_DEVICE int input_channels_of(int part) const {
    return is_split() ? input_channels - first_input_channel(part) : input_channels;
  }
  SLUICE_HOST_DEVICE int chunks_of(int part) const {
    return is_split() ? min_of(chunks_of_part, chunks - first_chunk(part)) : chunks;
  }
  SLUICE_HOST_DEVICE int first_chunk(int part) const { return part * chunks_of_part; }
  // Of the result's channels, which are as many for each part, that of the packed weight's first.
  SLUICE_HOST_DEVICE int first_packed_channel(int part) const { return is_split() ? groups.first_output(part) : 0; }
  SLUICE_HOST_DEVICE int partial_steps() const { return steps_of_row; }
};

// Shared memory, from its start: input stages, weight stages, raw tiles, what follows here.
struct DenseShared {
  float staged[kDenseConsumerWarps][kDenseStagedFloats];  // a piece of a warp's results, on their way to vectors
  float bias[2][kMostDenseChannels];                      // of each consuming warpgroup's tile
  std::uint64_t input_full[kMostInputStages], input_empty[kMostInputStages];
  std::uint64_t weight_full[kMostWeightStages], weight_empty[kMostWeightStages];
};

// One tile of the result.
struct DenseTile {
  int batch, position, channel;  // its first
  int group = 0;
};

template <int Channels>
__device__ __forceinline__ DenseTile dense_tile(const DenseArguments& a, int tile) {
  const int upper = static_cast<int>(a.by_channel_tiles.quotient_of_31_bits(tile));
  const int batch = static_cast<int>(a.by_position_tiles.quotient_of_31_bits(upper));
  return {batch, (upper - batch * static_cast<int>(a.by_position_tiles.divisor)) * a.tile_positions,
          (tile - upper * static_cast<int>(a.by_channel_tiles.divisor)) * Channels};
}

// A tile of channels lies in one group.
template <int Channels>
__device__ __forceinline__ DenseTile dense_tile(const GeneralDenseArguments& a, int tile) {
  DenseTile found = dense_tile<Channels>(static_cast<const DenseArguments&>(a), tile);
  const int channel_tile = found.channel / Channels;
  found.group = a.groups.group_of(channel_tile);
  found.channel = a.groups.first_channel(channel_tile, Channels);
  return found;
}

// The taps of a tile in the order in which they are summed: of each chunk of channels, phase by phase.
struct PhaseStep {
  int chunk = 0, phase = 0;

  template <class Arguments>
  __device__ __forceinline__ void advance(const Arguments& a) {
    if (++phase == a.phases()) phase = 0, ++chunk;
  }
};

// A place in a ring, and the parity of the phase in which it is used.
struct RingPlace {
  int stage = 0, parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void advance(int stages, int steps) {
    for (stage += steps; stage >= stages; stage -= stages) parity ^= 1;
  }
};

}  // namespace sluice
