// What the kernels of short chunks take, and how windows lie.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/vector.cuh"

namespace sluice {

// What both kernels read first, in few lines of the constant cache, which is cold in each launch.
struct ChunkNumbers {
  const char* packed;
  char* window;        // (part, k-block, row, residue, place) of rows of a k-block's channels
  unsigned* counters;  // of tiles: blocks that have their sums; null without splits
  float* sums;         // (split, tile, column, channel)
  // Bytes of a k-block of the window, of a part of the window, of a tap's part of the weight, and of its k-block.
  long long slab, part, tap, block;
  FastDivisor by_stride, by_splits, by_channel_tiles, by_frame_tiles, by_frames;
  int splits, tiles, channel_tiles, split_k_blocks, k_blocks, tap_groups, stage_taps, taps, dilation, stride;
  int row_bytes, words_log, parts, weight_rows, rows, tile_rows, frames, tile_frames, places, tile_places;
  int stages, stage_bytes, columns, warp_columns_log;
  int stage_warps_log;  // warps that share a stage's first copies, as a power of two
};

struct ChunkArguments {
  ChunkNumbers n;
  ChunkTensors t;
  float* overlaps;  // (row, column, channel); null for a convolution
  FastDivisor by_weight_rows;
  bool along, by_components, single;  // as in ChunkPlan
  ChainArguments<float, 3> post;
};

// Rows of 128 bytes: a quarter of a warp reads four words of two adjacent places, which are in different banks.
__device__ __forceinline__ int place_offset(int place, int word, int row_bytes) {
  const int twist = row_bytes == 128 ? (place & 1) * 4 : 0;
  return place * row_bytes + (word ^ twist) * kWordBytes;
}

}  // namespace sluice
