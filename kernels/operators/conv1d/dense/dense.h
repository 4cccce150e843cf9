// The dense method: every output channel sums over all input channels, on tensor cores: by wgmma on compute capability
// 9.0 (dense.cuh draws it), by mma.sync on 8.0 and later (portable/portable.cuh).
#pragma once

#include <string>

#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/operators/conv1d/dense/policy.h"
#include "kernels/operators/conv1d/dense/residues.h"
#include "kernels/operators/conv1d/interleaved/interleave.h"
#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/common/operand.h"

namespace sluice {

// Dense arguments beside Conv1dTensors, whose `weight` the kernel does not read.
struct DenseTensors {
  Operand<3> weight = {};        // (output channel, input channel, tap)
  long long input_channels = 0;  // input channels of a group; 0 where the convolution cannot be dense
  long long groups = 1;
  int weight_taps = 0;           // all taps of a transposed convolution
  bool allows_tf32 = false;      // float32 may be rounded to TF32
  const void* packed = nullptr;  // the weight in packed_order (pack.h); null: the call packs it into the workspace
  bool follows_own = false;  // the stream's previous kernel is the call's: it packs the weight or converts the input
  void* sums = nullptr;      // memory for the sums of splits (splits.h)
  // The to_channels_last kernel with `pre` linked in, where the plan applies `pre` first; null: interpreted.
  const void* linked_to_channels_last = nullptr;
};

struct DenseShape {
  int blocks;    // blocks of 64 positions, for each of two warpgroups
  int channels;  // output channels

  constexpr int positions() const { return 2 * 64 * blocks; }
};

inline constexpr DenseShape kDenseShapes[] = {
#define SLUICE_DENSE_TILE(blocks, channels) {blocks, channels},
#include "kernels/operators/conv1d/dense/tiles.def"
#undef SLUICE_DENSE_TILE
};

// Whether the interleaving kernel is compiled for the tile.
constexpr bool interleaves(const DenseShape& tile) {
#define SLUICE_DENSE_TILE(blocks_, channels_) \
  if (tile.blocks == (blocks_) && tile.channels == (channels_)) return true;
#include "kernels/operators/conv1d/interleaved/tiles.def"
#undef SLUICE_DENSE_TILE
  return false;
}

// How a pipeline stage of the input is fetched: 16 bytes of a position's channels at a time; 16 bytes of a channel's
// positions, whose count is a multiple of a word's; the same for unaligned rows; or element by element.
enum class DenseFetch : int { channels, positions, shifted, elements };

// Bytes of the fetching warps' rings of raw tiles.
SLUICE_HOST_DEVICE int dense_raw_bytes(DenseFetch fetch) {
  const bool shifted = fetch == DenseFetch::shifted;
  return shifted || fetch == DenseFetch::positions ? kDenseFetchThreads / 32 * raw_ring_bytes(shifted) : 0;
}

// Width and count of the vectors that `post` takes at a time: what a thread stores.
inline constexpr int kDensePostWidth = 8, kDensePostSlices = 2;

// Upper bound of the shared memory beside the stages (arguments.cuh): epilogue tiles, biases, barriers.
inline constexpr int kDenseSharedBytes = kDenseConsumerWarps * kEpilogueFloats * 4 + 2 * kMostDenseChannels * 4 + 1024;

enum class DenseKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/dense/kernels.def"
};

inline constexpr const char* kDenseKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/dense/kernels.def"
};
constexpr const char* name_of(DenseKernel kernel) { return kDenseKernelNames[static_cast<int>(kernel)]; }

struct DensePlan {
  int shape = 0;                 // index of the tile in kDenseShapes
  PackedOrder order;             // order of the weight
  bool halves_k_blocks = false;  // a stage holds half of a k-block of the order, else all of it (portable)
  int k_blocks = 0;              // k-blocks of a group, each as wide as a stage
  int shift = 0;                 // positions of a stage before the first output's first tap
  int stage_rows = 0;
  int map_rows = 0, map_copies = 0;  // rows of a copy, and copies of a stage, by a tensor map; 0: none (input_map.h)
  int stage_positions = 0;           // positions fetched for a stage, including positions that no row takes
  bool is_general = false;           // the kernel with strides, groups and splits
  int splits = 1;                    // splits of the k-blocks of each tile that is not whole (splits.h)
  long long sums_bytes = 0;          // bytes of the splits' sums, at the end of the workspace; 0 without splits
  int steps = 0;                     // steps of 32 bytes, as many of a stage's row as are multiplied
  TapResidues residues;              // residues of the taps
  DenseFetch fetch = DenseFetch::channels;
  bool converts_input = false;     // the input is converted to channels-last first (to_channels_last.h)
  bool applies_pre_first = false;  // the conversion applies `pre`; the kernel itself then has none
  int input_stages = 0;
  int stage_taps = 0, weight_stages = 0;  // taps of a stage of the weights, and stages
  bool resident = false;                  // all weights of a block's tiles have their own stages and stay in them
  bool is_portable = false;               // the kernel of mma.sync (portable/portable.h)
  // The warpgroups take whole tiles instead of half of each: alternately, or in the portable kernel beside each other.
  bool is_pingpong = false;
  bool by_positions = false;  // the result's positions are contiguous, not its channels
  long long position_tiles = 0, channel_tiles = 0;
  long long whole_tiles = 0;  // tiles that one block sums
  long long tiles = 0;        // the same and the splits of all others

  const DenseShape& tile() const { return kDenseShapes[shape]; }
  int positions() const { return tile().positions() / (is_pingpong ? 2 : 1); }  // positions of a block's tile
  int channels() const { return tile().channels * (is_portable && is_pingpong ? 2 : 1); }  // channels of it
  long long split_tiles() const { return (tiles - whole_tiles) / splits; }
  int k_block() const { return order.k_block >> (halves_k_blocks ? 1 : 0); }  // input channels of a stage
  int row_bytes() const { return k_block() * order.element_bytes; }           // bytes of a stage's row
  int k_blocks_of_split() const { return ceil_div(k_blocks, splits); }
  // 3, for which the kernel has its own code, or 0: all four.
  int partial_steps() const { return is_general && row_bytes() == kWidestRow && steps == 3 ? steps : 0; }
  int weight_stages_of_tile() const {
    const int longer = ceil_div(residues.least_taps + 1, stage_taps),
              others = ceil_div(residues.least_taps, stage_taps);
    return k_blocks * (residues.longer * longer + (residues.count - residues.longer) * others);
  }
};

// Which code of the dense method a device runs.
enum class DenseCode { none, wgmma, portable };
DenseCode dense_code(const DeviceProperties& device);
bool forces_portable();  // SLUICE_DENSE=portable: on every device, and where torch's is faster

struct Conv1dProblem;
struct Conv1dParams;
struct Conv1dPlan;

// Whether vectors along `dimension` (1: channels, 2: positions) are aligned words of memory.
bool has_words(const Operand<3>& operand, const long long (&sizes)[3], int dimension);

// By the input's strides and alignment.
DenseFetch dense_fetch(const Conv1dParams& params);

// The fastest tile that fetches the input unconverted; 0 threads where none fits.
Conv1dPlan plan_dense_unconverted(const Conv1dProblem& problem, const DeviceProperties& device);

// Where torch's convolution should run, `threads` is 0 and `reason` says why.
Conv1dPlan plan_dense(const Conv1dProblem& problem, const DeviceProperties& device);

DenseKernel kernel_of(const DensePlan& plan);  // where nothing is interleaved

std::string describe(const DensePlan& plan);

}  // namespace sluice
