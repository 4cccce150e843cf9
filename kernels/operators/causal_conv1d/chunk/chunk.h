// The product of a short chunk of a stream, in one launch: few frames of several rows, so that the weights, which are
// read once for all rows, are most of what is read.
//
//   window rows         weights                 sums
//   b0  |hhx....|       |tap 0 |tap 1 |..       columns: frames of b0, of b1, ..      16 a matrix
//   b1  |hhx....|        ..                     by output channels                     8 a matrix
//
// A block has some columns, some channels and some k-blocks of input channels; its warps share the taps of them. Sums
// of a split (some of the k-blocks) are joined after a barrier of the grid, and only then are results, states and
// overlaps written: a block may read a state that another block replaces.
#pragma once

#include "kernels/operators/causal_conv1d/window.h"
#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

inline constexpr int kChunkThreads = 256, kChunkWarps = kChunkThreads / 32;
inline constexpr int kChunkChannels = 32;  // output channels of a block
inline constexpr int kMostChunkColumns = 64;

// A row of the batch as a block reads it.
struct ChunkRow {
  long long row, slot;
  bool continues;  // whether its slot has a state
};
inline constexpr int kChunkRowsBytes = kMostChunkColumns * static_cast<int>(sizeof(ChunkRow));

// Operands are (row, channel, position).
struct ChunkTensors {
  Operand<3> input, output;
  Operand<1> bias;  // may be absent
  const void* packed;
  PackedOrder order;
  Sequences states;                          // `before` is the cache of states, or of overlaps
  long long rows, input_channels, channels;  // `channels` of the result
  long long length, frames;                  // positions of the input, and columns of a row's sums
  int taps, stride, dilation;
  long long history;  // columns of a state that the product reads
  Before padding;
  // Results of a frame and a channel of a transposed convolution, its components; 0 for a convolution.
  int spread;
  long long channel_rows, component_rows;  // rows of the weight from a channel, or a component, to the next
  long long overlap;                       // columns of an overlap
};

struct ChunkParams : ChunkTensors {
  Program pre = {}, post = {};
  Operand<3> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct ChunkPlan {
  int grid = 0;           // blocks, all resident; 0: no plan
  int columns = 0;        // columns of a block: 16, 32 or 64
  int frames = 0;         // frames of a row in a block
  int rows = 0;           // rows of a block
  int window = 0;         // window positions of a row in a block
  int splits = 1;         // blocks that share the k-blocks
  int k_blocks = 0;       // k-blocks of a split
  int staged = 0;         // k-blocks in shared memory at a time
  int shared_memory = 0;  // bytes: the rows, then k-blocks, and in their place the warps' sums
  long long column_tiles = 0, channel_tiles = 0;
  long long workspace_bytes = 0;  // sums of all splits
};

// A plan of no blocks where the kernel does not take the problem.
ChunkPlan plan_chunk(const ChunkParams& params, DType dtype, const DeviceProperties& device);

}  // namespace sluice
