// A block's products. A warp has some of the tile's columns, and takes its part of a stage's units: a unit is a tap of
// four words of channels.
//
// Lane l has words l % 4 of columns l / 4 and l / 4 + 8, and of a row of each matrix of 8 weights. Both factors order
// the channels of a word alike, so any order will do, and words are read whole.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/copies.cuh"
#include "kernels/shared/mma/mma_sync.cuh"
#include "kernels/shared/mma/swizzle.h"
#include "kernels/shared/mma/tf32.h"

namespace sluice {

inline constexpr int kChunkMatrices = kChunkChannels / 8;  // matrices of output channels

template <int LaneColumns>
using ChunkSums = float[LaneColumns / 16][kChunkMatrices][4];

// The row of a matrix that is its column `n` in a product: two adjacent columns' words are in different banks.
__device__ __forceinline__ int matrix_row(int n, int row_bytes) { return row_bytes == 128 ? n / 2 + n % 2 * 4 : n; }

// What a lane reads: its columns' places of their first taps, and its row of each matrix of weights.
template <int LaneColumns>
struct LaneReads {
  int place[LaneColumns / 8], twist[LaneColumns / 8];  // offset, and which bit of it a place changes (place_offset)
  int twist_bit, row, row_twist;

  __device__ explicit LaneReads(const ChunkArguments& a) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int first = (warp & ((1 << a.n.warp_columns_log) - 1)) * LaneColumns + lane / 4;
    twist_bit = a.n.row_bytes == 128 ? 64 : 0;
    row = matrix_row(lane / 4, a.n.row_bytes) * a.n.row_bytes;
    row_twist = static_cast<int>(swizzled(row, a.n.row_bytes)) - row;
#pragma unroll
    for (int i = 0; i < LaneColumns / 8; ++i) {
      const int column = first + i * 8, of_row = static_cast<int>(a.n.by_frames.quotient_of_31_bits(column));
      const int own =
          of_row < a.n.tile_rows ? of_row * a.n.stride * a.n.tile_places + column - of_row * a.n.tile_frames : 0;
      place[i] = own * a.n.row_bytes, twist[i] = own & 1 ? twist_bit : 0;
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

// sums += a warp's products of a stage, whose first unit is `unit`. `zero` is a word of zeros, for lanes without a
// word.
template <bool IsSplit, class Element, int LaneColumns>
__device__ __forceinline__ void multiply_stage(const ChunkArguments& a, const ChunkStage& stage,
                                               const StageLayout& layout, const LaneReads<LaneColumns>& reads, int unit,
                                               int units, const char* memory, const char* zero,
                                               ChunkSums<LaneColumns>& sums) {
  const int log = a.n.words_log, last = (1 << log) - 1, taps = stage.taps(a);
  const char* const window = memory + layout.window;
#pragma unroll 1
  for (; unit < units; unit += kChunkWarps >> a.n.warp_columns_log) {
    const int index = unit * 4 + static_cast<int>(threadIdx.x) % 4, tap = index >> log;
    const bool exists = tap < taps;
    const int word = (index & last) * kWordBytes, reach = (stage.first_tap + tap) * a.n.dilation;
    const int quotient = static_cast<int>(a.n.by_stride.quotient_of_31_bits(reach));
    const int shift = (reach - quotient * a.n.stride) * a.n.tile_places + quotient;
    const int twisted = shift & 1 ? word ^ reads.twist_bit : word, offset = shift * a.n.row_bytes;
    int offsets[LaneColumns / 8];
#pragma unroll
    for (int i = 0; i < LaneColumns / 8; ++i) {
      const int own = reads.place[i] + offset + (twisted ^ reads.twist[i]);
      offsets[i] = exists ? own : static_cast<int>(zero - window);
    }
    const char* const weights = memory + tap * layout.tap + reads.row + (word ^ reads.row_twist);
    multiply_unit<IsSplit, Element, LaneColumns>(exists ? weights : zero, exists ? 8 * a.n.row_bytes : 0,
                                                 exists ? layout.low_weights : 0, window,
                                                 exists ? layout.low_window : 0, offsets, sums);
  }
}

// A warp's sums of all stages of the block. The warps take units in turn, also from a stage to the next.
template <bool IsSplit, class Element, int LaneColumns>
__device__ __forceinline__ void multiply_item(const ChunkArguments& a, const ChunkItem& item, const ChunkCopies& copies,
                                              const LaneReads<LaneColumns>& reads, const char* memory, const char* zero,
                                              ChunkSums<LaneColumns>& sums) {
  const int warp = static_cast<int>(threadIdx.x) / 32, others = (kChunkWarps >> a.n.warp_columns_log) - 1;
  const int ahead = min_of(a.n.stages, item.stages);
  ChunkStage stage(a, item), copied = stage;
  if (ahead < item.stages) {
#pragma unroll 1
    for (int s = 0; s < ahead; ++s) copied.advance(a);
  }
  int before = 0;  // units
#pragma unroll 1
  for (int s = 0; s < item.stages; ++s, stage.advance(a)) {
    const int units = ((stage.taps(a) << a.n.words_log) + 3) / 4;
    wait_for_phase(copies.full + stage.buffer, stage.parity);
    multiply_stage<IsSplit, Element, LaneColumns>(a, stage, copies.layout, reads,
                                                  ((warp >> a.n.warp_columns_log) - before) & others, units,
                                                  memory + stage.start(a), zero, sums);
    before += units;
    if (s + ahead >= item.stages) continue;
    __syncthreads();
    copies.copy_weights(a, copied, warp, kChunkWarps);
    copies.copy_window(a, copied, warp, kChunkWarps);
    if constexpr (!kCopiesBulk) arrive_with_copies(copies.full + copied.buffer);
    copied.advance(a);
  }
}

}  // namespace sluice
