// What the kernel of short chunks takes, and how its columns lie.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

struct ChunkArguments : ChunkTensors {
  ChunkPlan plan;
  float* sums;  // (split, tile, column, channel); null: none
  int items;    // tiles, by splits
  FastDivisor by_splits, by_channel_tiles, by_frame_tiles, by_frames;
  bool words;   // whole words of the input's channels are aligned
  bool across;  // adjacent threads take adjacent words of channels, else positions
  ChainArguments<float, 3> pre, post;

  // Whether sums go through memory.
  __device__ bool keeps_sums() const { return sums != nullptr; }
};

// A block's work: some columns by some channels, of some k-blocks.
struct ChunkItem {
  int tile, split;
  int first_row, first_frame;  // row and frame of the first column
  int first_channel;           // row of the weight
  int first_k_block, last_k_block;

  __device__ ChunkItem(const ChunkArguments& a, int item) {
    tile = static_cast<int>(a.by_splits.quotient_of_31_bits(item));
    split = item - tile * a.plan.splits;
    const int columns = static_cast<int>(a.by_channel_tiles.quotient_of_31_bits(tile));
    first_channel = (tile - columns * static_cast<int>(a.plan.channel_tiles)) * kChunkChannels;
    const int rows = static_cast<int>(a.by_frame_tiles.quotient_of_31_bits(columns));
    first_row = rows * a.plan.rows;
    first_frame = (columns - rows * static_cast<int>(a.by_frame_tiles.divisor)) * a.plan.frames;
    first_k_block = split * a.plan.k_blocks;
    last_k_block = min_of(first_k_block + a.plan.k_blocks, a.order.k_blocks);
  }
};

// A column of a block: a frame of one of its rows.
struct ChunkColumn {
  int row, frame;  // in the block

  __device__ ChunkColumn(const ChunkArguments& a, int column) {
    row = static_cast<int>(a.by_frames.quotient_of_31_bits(column));
    frame = column - row * a.plan.frames;
  }
  __device__ bool exists(const ChunkArguments& a, const ChunkItem& item) const {
    return row < a.plan.rows && item.first_row + row < a.rows && item.first_frame + frame < a.frames;
  }
};

}  // namespace sluice
