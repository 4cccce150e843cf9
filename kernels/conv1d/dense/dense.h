// The dense method: every output channel sums over all input channels, on tensor cores (wgmma, compute capability 9.0).
// How it does is drawn in dense_kernel.cuh.
#pragma once

#include <string>

#include "kernels/common/device_properties.h"
#include "kernels/common/operand.h"
#include "kernels/conv1d/dense/interleave.h"
#include "kernels/conv1d/dense/pack.h"
#include "kernels/conv1d/dense/phases.h"
#include "kernels/conv1d/dense/policy.h"

namespace sluice {

// What the kernel is given beside Conv1dTensors, whose `weight` it leaves alone.
struct DenseTensors {
  Operand<3> weight = {};        // (output channel, input channel, tap)
  long long input_channels = 0;  // a row of the weight, those of a group; 0 where the convolution cannot be dense
  long long groups = 1;
  int weight_taps = 0;               // of a transposed convolution's whole weight
  const void* packed = nullptr;      // the weight in packed_order (pack.h); else it is packed into the workspace first
  bool follows_pack = false;         // the kernel before in the stream packs it
  const void* linked_lay = nullptr;  // where the plan lays `pre`: its kernel with that linked in; null: interpreted
};

struct DenseShape {
  int blocks;    // of 64 positions, for each of two warpgroups
  int channels;  // output channels

  constexpr int positions() const { return 2 * 64 * blocks; }
};

inline constexpr DenseShape kDenseShapes[] = {
#define SLUICE_DENSE_TILE(blocks, channels) {blocks, channels},
#include "kernels/conv1d/dense/tiles.def"
#undef SLUICE_DENSE_TILE
};

// Whether the kernel of interleaved results is compiled for the tile.
constexpr bool interleaves(const DenseShape& tile) {
#define SLUICE_DENSE_TILE(blocks_, channels_) \
  if (tile.blocks == (blocks_) && tile.channels == (channels_)) return true;
#include "kernels/conv1d/dense/interleaved_tiles.def"
#undef SLUICE_DENSE_TILE
  return false;
}

// How a stage of the input is fetched: 16 bytes of a position's channels at a time, 16 bytes of a channel's positions,
// of which there is a multiple of eight, the same of rows that begin anywhere, or element by element.
enum class DenseFetch : int { channels, positions, shifted, elements };

// The fetching warps' rings of raw tiles.
SLUICE_HOST_DEVICE int dense_raw_bytes(DenseFetch fetch) {
  const bool shifted = fetch == DenseFetch::shifted;
  return shifted || fetch == DenseFetch::positions ? kDenseFetchThreads / 32 * raw_ring_bytes(shifted) : 0;
}

// What a chain takes at a time, as vectors of so many values: `pre` channels, `post` what a thread stores.
inline constexpr int kDensePreWidth = 8, kDensePreSlices = 1;
inline constexpr int kDensePostWidth = 8, kDensePostSlices = 2;

// The most that the kernel keeps in shared memory beside its stages (arguments.cuh): pieces of results, biases,
// barriers.
inline constexpr int kDenseSharedBytes =
    kDenseConsumerWarps * kDenseStagedFloats * 4 + 2 * kMostDenseChannels * 4 + 1024;

struct DensePlan {
  int shape = 0;      // index of the tile in kDenseShapes
  PackedOrder order;  // of the weight; a stage is as wide as its chunk
  int shift = 0;      // positions of a stage ahead of the first output's first tap
  int stage_rows = 0;
  int stage_positions = 0;   // fetched for a stage; some of them for none of its rows
  bool is_general = false;   // by the kernel with strides, groups and parts
  int parts = 1;             // of the input channels, each with sums of its own, which are added afterwards
  long long sums_bytes = 0;  // of those, the last of the workspace; 0 for one part
  int steps = 0;             // of 16 input channels, that count of a stage's rows
  DensePhases phases;        // whose taps lie so
  DenseFetch fetch = DenseFetch::channels;
  bool lays_channels = false;  // the input is laid channels side by side first (lay.h)
  bool lays_pre = false;       // with `pre` on the way, which the kernel itself then has not
  int input_stages = 0;
  int stage_taps = 0, weight_stages = 0;  // a stage of the weights has so many taps
  bool resident = false;                  // all weights have a stage of their own and stay there
  bool alternates = false;                // the warpgroups take tiles in turn, instead of half of each
  bool by_positions = false;              // neighbours in the result's memory are positions, not channels
  long long position_tiles = 0, channel_tiles = 0;
  long long tiles = 0;  // that the blocks share out among them

  const DenseShape& tile() const { return kDenseShapes[shape]; }
  int positions() const { return tile().positions() / (alternates ? 2 : 1); }  // of a tile
  int chunks_of_tile() const { return ceil_div(order.chunks, parts); }
  // Three of four, of which the kernel has a form of its own, or 0.
  int partial_steps() const { return is_general && order.chunk == 64 && steps == 3 ? steps : 0; }
  int weight_stages_of_tile() const {
    const int longer = ceil_div(phases.least_taps + 1, stage_taps), others = ceil_div(phases.least_taps, stage_taps);
    return order.chunks * (phases.longer * longer + (phases.phases - phases.longer) * others);
  }
};

struct Conv1dProblem;
struct Conv1dParams;
struct Conv1dPlan;

// Whether vectors along a dimension of input or output, 1 for channels and 2 for positions, are words of memory.
bool has_words(const Operand<3>& operand, const long long (&sizes)[3], int dimension);

// By how the input lies.
DenseFetch dense_fetch(const Conv1dParams& params);

// The fastest tile whose input is fetched as it lies; 0 threads where none fits.
Conv1dPlan plan_dense_as_it_lies(const Conv1dProblem& problem, const DeviceProperties& device);

// `threads` is 0 and `reason` says why where torch's convolution is to be taken.
Conv1dPlan plan_dense(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const DensePlan& plan);

}  // namespace sluice
