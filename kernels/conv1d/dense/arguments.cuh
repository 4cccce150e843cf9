// What the dense kernel is given, and where things lie in its shared memory.
#pragma once

#include "kernels/common/fast_divide.h"
#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
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
  SLUICE_HOST_DEVICE int weight_groups() const { return chunks * ceil_div(taps, stage_taps); }  // of a tile
  SLUICE_HOST_DEVICE int input_stage_bytes() const { return round_up(stage_rows * row_bytes, kTileAlignment); }
  SLUICE_HOST_DEVICE int raw_bytes() const { return dense_raw_bytes(fetch); }
  SLUICE_HOST_DEVICE int weight_stage_bytes(int tile_channels) const { return stage_taps * tile_channels * row_bytes; }
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
};

template <int Channels>
__device__ __forceinline__ DenseTile dense_tile(const DenseArguments& a, int tile) {
  const int upper = static_cast<int>(a.by_channel_tiles.quotient_of_31_bits(tile));
  const int batch = static_cast<int>(a.by_position_tiles.quotient_of_31_bits(upper));
  return {batch, (upper - batch * static_cast<int>(a.by_position_tiles.divisor)) * a.tile_positions,
          (tile - upper * static_cast<int>(a.by_channel_tiles.divisor)) * Channels};
}

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
