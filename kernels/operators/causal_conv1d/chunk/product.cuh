// A block's products. Stages of shared memory have a k-block of the tile's window and of some taps' weights. A warp has
// some of the tile's columns, and takes its part of the stage's units: a unit is a tap of four words of channels.
//
// Lane l has words l % 4 of columns l / 4 and l / 4 + 8, and of a row of each matrix of 8 weights. Both factors order
// the channels of a word alike, so any order will do, and words are read whole.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/arguments.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/mma/mma_sync.cuh"
#include "kernels/shared/mma/swizzle.h"
#include "kernels/shared/mma/tf32.h"
#include "kernels/shared/pipeline/copy_groups.cuh"

namespace sluice {

inline constexpr int kChunkMatrices = kChunkChannels / 8;  // matrices of output channels

template <int LaneColumns>
using ChunkSums = float[LaneColumns / 16][kChunkMatrices][4];

// A block's work.
struct ChunkItem {
  int tile, split;
  int first_row, first_frame;  // row and frame of the first column
  int first_channel;           // row of the weight
  int first_k_block, stages;   // stages of the split

  __device__ explicit ChunkItem(const ChunkArguments& a) {
    const auto index = blockIdx.x;
    tile = static_cast<int>(a.n.by_splits.quotient_of_31_bits(index));
    split = static_cast<int>(index) - tile * a.n.splits;
    const int columns = static_cast<int>(a.n.by_channel_tiles.quotient_of_31_bits(tile));
    first_channel = (tile - columns * a.n.channel_tiles) * kChunkChannels;
    const int rows = static_cast<int>(a.n.by_frame_tiles.quotient_of_31_bits(columns));
    first_row = rows * a.n.tile_rows;
    first_frame = (columns - rows * static_cast<int>(a.n.by_frame_tiles.divisor)) * a.n.tile_frames;
    first_k_block = split * a.n.split_k_blocks;
    stages = min_of(a.n.split_k_blocks, a.n.k_blocks - first_k_block) * a.n.tap_groups;
  }
};

// The row of a matrix that is its column `n` in a product: two adjacent columns' words are in different banks.
__device__ __forceinline__ int matrix_row(int n, int row_bytes) { return row_bytes == 128 ? n / 2 + n % 2 * 4 : n; }

// A stage, and where its parts are, in bytes. The weights are [tap][part][row].
struct ChunkStage {
  int k_block, first_tap, taps;
  int row_bytes, tap_bytes, low_weights, window, low_window;

  __device__ __forceinline__ ChunkStage(const ChunkArguments& a, const ChunkItem& item, int stage) {
    const int groups = a.n.tap_groups, own = groups == 1 ? stage : stage / groups;
    k_block = item.first_k_block + own;
    first_tap = (stage - own * groups) * a.n.stage_taps;
    taps = min_of(a.n.stage_taps, a.n.taps - first_tap);
    row_bytes = a.n.row_bytes;
    low_weights = kChunkChannels * row_bytes;
    tap_bytes = low_weights * a.n.parts;
    window = a.n.stage_taps * tap_bytes;
    low_window = a.n.tile_rows * a.n.stride * a.n.tile_places * row_bytes;
  }
};

// Copies lines of `bytes`, a warp a line, or all threads one line.
__device__ __forceinline__ void copy_lines(std::uint32_t to, int to_step, const char* from, long long from_step,
                                           int lines, int bytes) {
  const int threads = lines == 1 ? kChunkThreads : 32;
  const int lane = lines == 1 ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int line = lines == 1 ? 0 : static_cast<int>(threadIdx.x) / 32; line < lines; line += kChunkWarps) {
    const char* const own = from + line * from_step;
#pragma unroll 2
    for (int i = lane * kWordBytes; i < bytes; i += threads * kWordBytes) copy_word(to + line * to_step + i, own + i);
  }
}

// The copies of a stage's weights.
__device__ __forceinline__ void copy_weights(const ChunkArguments& a, const ChunkItem& item, const ChunkStage& stage,
                                             std::uint32_t to) {
  const int rows = min_of(kChunkChannels, a.n.weight_rows - item.first_channel);
  const char* const from = a.n.packed + stage.k_block * a.n.block + stage.first_tap * a.n.parts * a.n.tap +
                           item.first_channel * stage.row_bytes;
  copy_lines(to, stage.low_weights, from, a.n.tap, stage.taps * a.n.parts, rows * stage.row_bytes);
}

// The copies of a stage's window. Places that do not exist belong to columns that do not.
__device__ __forceinline__ void copy_window(const ChunkArguments& a, const ChunkItem& item, const ChunkStage& stage,
                                            std::uint32_t to) {
  const int lines = min_of(a.n.tile_rows, a.n.rows - item.first_row) * a.n.stride;
  const int line = a.n.places * stage.row_bytes, tile_line = a.n.tile_places * stage.row_bytes;
  const int left = min_of(a.n.tile_places, a.n.places - item.first_frame) * stage.row_bytes;
  const char* const from = a.n.window + stage.k_block * a.n.slab +
                           static_cast<long long>(item.first_row) * a.n.stride * line +
                           item.first_frame * stage.row_bytes;
  const bool whole = a.n.tile_places == a.n.places;  // rows, which are contiguous
#pragma unroll 1
  for (int part = 0; part < a.n.parts; ++part) {
    copy_lines(to + stage.window + part * stage.low_window, tile_line, from + part * a.n.part, line, whole ? 1 : lines,
               whole ? lines * line : left);
  }
}

// The places of a lane's columns in a stage's window, of their first taps.
template <int LaneColumns>
struct LanePlaces {
  int place[LaneColumns / 8];

  __device__ explicit LanePlaces(const ChunkArguments& a) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int first = (warp & ((1 << a.n.warp_columns_log) - 1)) * LaneColumns + lane / 4;
#pragma unroll
    for (int i = 0; i < LaneColumns / 8; ++i) {
      const int column = first + i * 8, row = static_cast<int>(a.n.by_frames.quotient_of_31_bits(column));
      place[i] = row < a.n.tile_rows ? row * a.n.stride * a.n.tile_places + column - row * a.n.tile_frames : 0;
    }
  }
};

// sums += the products of words of sixteen columns and of a matrix of channels.
template <class Element>
__device__ __forceinline__ void multiply_words(float (&sums)[4], const Word& upper, const Word& lower,
                                               const Word& weights) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const std::uint32_t rows[4] = {upper.lanes[2 * step], lower.lanes[2 * step], upper.lanes[2 * step + 1],
                                   lower.lanes[2 * step + 1]};
    multiply_add<Element>(sums, rows, make_uint2(weights.lanes[2 * step], weights.lanes[2 * step + 1]));
  }
}

// The products of a unit, whose words are in shared memory. Tensor cores cut the sums of float32's parts, so these sum
// no more than a unit.
template <bool IsSplit, class Element, int LaneColumns>
__device__ __forceinline__ void multiply_unit(const char* weights, int to_matrix, int to_low, const char* window,
                                              int to_low_window, const int (&offsets)[LaneColumns / 8],
                                              ChunkSums<LaneColumns>& sums) {
  const auto word_of = [&](const char* from) { return *reinterpret_cast<const Word*>(from); };
  Word own[kChunkMatrices], own_low[IsSplit ? kChunkMatrices : 1];
#pragma unroll
  for (int m = 0; m < kChunkMatrices; ++m) {
    own[m] = word_of(weights + m * to_matrix);
    if constexpr (IsSplit) own_low[m] = word_of(weights + m * to_matrix + to_low);
  }
#pragma unroll
  for (int b = 0; b < LaneColumns / 16; ++b) {
    const char *const first = window + offsets[2 * b], *const second = window + offsets[2 * b + 1];
    const Word upper = word_of(first), lower = word_of(second);
    if constexpr (!IsSplit) {
#pragma unroll
      for (int m = 0; m < kChunkMatrices; ++m) multiply_words<Element>(sums[b][m], upper, lower, own[m]);
    } else {
      const Word upper_low = word_of(first + to_low_window), lower_low = word_of(second + to_low_window);
#pragma unroll
      for (int m = 0; m < kChunkMatrices; ++m) {
        float high[4] = {}, mixed[4] = {};
        multiply_words<Element>(high, upper, lower, own[m]);
        multiply_words<Element>(mixed, upper, lower, own_low[m]);
        multiply_words<Element>(mixed, upper_low, lower_low, own[m]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[b][m][i] += fmaf(mixed[i], 1 / kLowScale, high[i]);
      }
    }
  }
}

// sums += a warp's products of a stage. `zero` is a word of zeros, for lanes without a word.
template <bool IsSplit, class Element, int LaneColumns>
__device__ __forceinline__ void multiply_stage(const ChunkArguments& a, const ChunkStage& stage,
                                               const LanePlaces<LaneColumns>& columns, const char* memory,
                                               const char* zero, ChunkSums<LaneColumns>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row_bytes = stage.row_bytes, log = row_bytes == 128 ? 3 : row_bytes == 64 ? 2 : 1;
  const int row_offset = matrix_row(lane / 4, row_bytes) * row_bytes;
  const char* const window = memory + stage.window;
  const int units = ((stage.taps << log) + 3) / 4;
#pragma unroll 1
  for (int unit = warp >> a.n.warp_columns_log; unit < units; unit += kChunkWarps >> a.n.warp_columns_log) {
    const int tap = (unit * 4 + lane % 4) >> log, word = (unit * 4 + lane % 4) & ((1 << log) - 1);
    const bool exists = tap < stage.taps;
    const int reach = (stage.first_tap + tap) * a.n.dilation;
    const int quotient = static_cast<int>(a.n.by_stride.quotient_of_31_bits(reach));
    const int shift = (reach - quotient * a.n.stride) * a.n.tile_places + quotient;
    int offsets[LaneColumns / 8];
#pragma unroll
    for (int i = 0; i < LaneColumns / 8; ++i) {
      const int offset = place_offset(columns.place[i] + shift, word, row_bytes);
      offsets[i] = exists ? offset : static_cast<int>(zero - window);
    }
    const auto in_matrix = swizzled(static_cast<std::uint32_t>(row_offset + word * kWordBytes), row_bytes);
    multiply_unit<IsSplit, Element, LaneColumns>(exists ? memory + tap * stage.tap_bytes + in_matrix : zero,
                                                 exists ? 8 * row_bytes : 0, exists ? stage.low_weights : 0, window,
                                                 exists ? stage.low_window : 0, offsets, sums);
  }
}

// A warp's sums of all stages of the block. The first weights are on their way before the previous kernel is done.
template <bool IsSplit, class Element, int LaneColumns>
__device__ __forceinline__ void multiply_item(const ChunkArguments& a, const ChunkItem& item, const char* zero,
                                              char* memory, ChunkSums<LaneColumns>& sums) {
  const LanePlaces<LaneColumns> columns(a);
  const int buffers = a.n.stages;
  const auto start = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  const int ahead = min_of(buffers, item.stages);
#pragma unroll 1
  for (int s = 0; s < ahead; ++s) {
    copy_weights(a, item, ChunkStage(a, item, s), start + s * a.n.stage_bytes);
  }
  await_previous();
  // Stage `s` is multiplied `ahead` turns after its copies.
  int to = 0, from = 0;
#pragma unroll 1
  for (int s = 0; s < item.stages + ahead; ++s) {
    if (s >= ahead) {
      wait_for_copies(min_of(buffers, item.stages + ahead - s) - 1);
      __syncthreads();
      multiply_stage<IsSplit, Element, LaneColumns>(a, ChunkStage(a, item, s - ahead), columns,
                                                    memory + from * a.n.stage_bytes, zero, sums);
      from = from + 1 == buffers ? 0 : from + 1;
    }
    if (s < item.stages) {
      const ChunkStage stage(a, item, s);
      if (s >= ahead) {
        __syncthreads();
        copy_weights(a, item, stage, start + to * a.n.stage_bytes);
      }
      copy_window(a, item, stage, start + to * a.n.stage_bytes);
      commit_copies();
      to = to + 1 == buffers ? 0 : to + 1;
    }
  }
}

}  // namespace sluice
