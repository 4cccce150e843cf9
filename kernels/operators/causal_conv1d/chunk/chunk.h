// The product of a short chunk of a stream: few frames of several rows, so that the weights, which are read once for
// all rows, are most of what is read. Two kernels, of which the second loads weights while the first runs:
//
//   gather    reads inputs and states, and replaces the states
//
//     row     |hhxxxxxx|      a row's window, after `pre`: channels of a position are adjacent, and a stride's residues
//     window  |h x x x|hxxx|  follow each other, because frames read every stride-th position
//
//   product   sums over the taps and k-blocks of 32 output channels and a tile of columns
//
//     columns                 frames of row 0, of row 1, ..
//     blocks  |k-blocks|..    a split of the k-blocks each; the last block of a tile adds up the splits' sums, in their
//                             order, and writes results or overlaps
#pragma once

#include "kernels/operators/causal_conv1d/window.h"
#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

inline constexpr int kChunkThreads = 256, kChunkWarps = kChunkThreads / 32;
inline constexpr int kChunkChannels = 32;   // output channels of a block
inline constexpr int kChunkStages = 8;      // most stages of shared memory
inline constexpr int kChunkRun = 4;         // adjacent results that a thread finishes at once
inline constexpr int kChunkSumsPitch = 36;  // floats of a column's sums in shared memory, in different banks

// What a block of the product has in shared memory before its stages.
struct ChunkShared {
  std::uint64_t full[kChunkStages];  // where the copies of a stage arrive
  float bias[kChunkChannels];
  char zero[kWordBytes];  // a word of zeros
  int is_last;            // whether the block is the last of its tile
};
inline constexpr int kChunkSharedBytes = 256;
static_assert(sizeof(ChunkShared) <= kChunkSharedBytes);

// Operands are (row, channel, position).
struct ChunkTensors {
  // The input and its states, of which the product reads `history` columns; the window is absent. A transposed
  // convolution has its cache of overlaps in the place of the states, and zeros before its input.
  WindowParams chunk;
  Operand<3> output;
  Operand<1> bias;  // may be absent
  const void* packed;
  PackedOrder order;
  long long rows, channels;  // `channels` of the result
  long long frames;          // columns of a row's sums
  int taps, stride, dilation;
  // Results of a frame and a channel of a transposed convolution, its components; 0 for a convolution.
  int spread;
  long long channel_rows, component_rows;  // rows of the weight from a channel, or a component, to the next
  long long overlap;                       // columns of an overlap

  long long word_rows() const { return order.k_blocks * static_cast<long long>(order.words()); }  // words of a position
};

struct ChunkParams : ChunkTensors {
  Program pre = {}, post = {};
  Operand<3> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct ChunkPlan {
  int grid = 0;          // blocks of the product; 0: no plan
  int places = 0;        // places of a residue of a row's window, an even number
  int lane_columns = 0;  // columns of a warp: 16 or 32
  // Warps that share a tile's columns, as a power of two; the others of a block share its taps and words.
  int warp_columns_log = 0;
  int frames = 0;       // frames of a row in a tile
  int rows = 0;         // rows of a tile
  int tile_places = 0;  // places of a residue in a tile, an even number
  int splits = 1;       // blocks that share the k-blocks of a tile
  int k_blocks = 0;     // k-blocks of a split
  int stage_taps = 0;   // taps of a stage of shared memory, which has a k-block of them
  int tap_groups = 0;   // stages of a k-block
  int stages = 0;       // stages of shared memory at a time
  int stage_bytes = 0, shared_memory = 0;
  long long column_tiles = 0, channel_tiles = 0;
  bool along = false;          // threads finish adjacent frames of a channel, else adjacent rows of the weight
  bool by_components = false;  // adjacent rows of the weight are a channel's components
  bool single = false;         // threads finish one row of the weight at a time
  // The workspace: windows, a counter for each tile, sums of the splits, and old overlaps (row, column, channel).
  long long counters_at = 0, sums_at = 0, overlaps_at = 0, workspace_bytes = 0;

  int columns() const { return lane_columns << warp_columns_log; }
  long long tiles() const { return column_tiles * channel_tiles; }
};

// A plan of no blocks where the kernels do not take the problem, or conv1d's are faster.
ChunkPlan plan_chunk(const ChunkParams& params, DType dtype, const DeviceProperties& device);

}  // namespace sluice
