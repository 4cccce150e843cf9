// A block's products: each of its warps takes every eighth unit, which is a tap of four words of a k-block's channels.
//
// Lane l has words l % 4 of columns l / 4 and l / 4 + 8, and of output channel l / 4 of each matrix. Both factors order
// the channels of a word alike, so any order will do, and words come straight from memory.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/fetch.cuh"
#include "kernels/shared/mma/mma_sync.cuh"

namespace sluice {

inline constexpr int kChunkMatrices = kChunkChannels / 8;  // matrices of output channels

template <int Columns>
using ChunkSums = float[Columns / 16][kChunkMatrices][4];

// The places of a lane's columns in shared memory, of their first taps.
template <int Columns>
struct LaneColumns {
  int place[Columns / 8];

  __device__ explicit LaneColumns(const ChunkArguments& a) {
    const int lane = static_cast<int>(threadIdx.x) % 32, of_row = WindowPlaces(a).of_row;
#pragma unroll
    for (int i = 0; i < Columns / 8; ++i) {
      const ChunkColumn column(a, i * 8 + lane / 4);
      place[i] = column.row < a.plan.rows ? column.row * of_row + column.frame : 0;
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

// One unit's words of the weight.
template <bool IsSplit>
struct ChunkWeights {
  Word high[kChunkMatrices], low[IsSplit ? kChunkMatrices : 1];
};

// Walks over the units of a warp.
struct ChunkUnits {
  int groups;  // groups of four words of a row
  int unit, end;

  __device__ ChunkUnits(const ChunkArguments& a, int count)
      : groups((a.order.words() + 3) / 4),
        unit(static_cast<int>(threadIdx.x) / 32),
        end(count * a.order.taps * groups) {}
  __device__ bool has_next() const { return unit < end; }
  __device__ void advance() { unit += kChunkWarps; }
  __device__ int group() const { return unit % groups; }
  __device__ int tap(const ChunkArguments& a) const { return unit / groups % a.order.taps; }
  __device__ int k_block(const ChunkArguments& a) const { return unit / groups / a.order.taps; }
};

template <bool IsSplit>
__device__ __forceinline__ ChunkWeights<IsSplit> load_chunk_weights(const ChunkArguments& a, const ChunkItem& item,
                                                                    int k_block, const ChunkUnits& units) {
  const int lane = static_cast<int>(threadIdx.x) % 32, word = units.group() * 4 + lane % 4;
  const int row = item.first_channel + lane / 4, row_bytes = a.order.row_bytes();
  const std::uint32_t in_atom =
      swizzled(static_cast<std::uint32_t>(lane / 4 * row_bytes + word * kWordBytes), row_bytes);
  const char* from = static_cast<const char*>(a.packed) +
                     ((static_cast<long long>(k_block + units.k_block(a)) * a.order.taps + units.tap(a)) *
                          a.order.parts * a.order.rows +
                      item.first_channel) *
                         row_bytes +
                     in_atom;
  const long long part = a.order.rows * row_bytes;
  ChunkWeights<IsSplit> weights;
#pragma unroll
  for (int m = 0; m < kChunkMatrices; ++m) {
    const bool exists = word < a.order.words() && row + m * 8 < a.order.rows;
    const Word none{};
    weights.high[m] = exists ? load_word(from + m * 8 * row_bytes) : none;
    if constexpr (IsSplit) weights.low[m] = exists ? load_word(from + m * 8 * row_bytes + part) : none;
  }
  return weights;
}

// The products of a unit. Tensor cores cut the sums of float32's parts, so these sum no more than a unit.
template <bool IsSplit, class Element, int Columns>
__device__ __forceinline__ void multiply_unit(const ChunkArguments& a, const LaneColumns<Columns>& columns,
                                              const ChunkUnits& units, const ChunkWeights<IsSplit>& weights,
                                              const char* memory, ChunkSums<Columns>& sums) {
  const WindowPlaces places(a);
  const int word = units.group() * 4 + static_cast<int>(threadIdx.x) % 4;
  const int shift = places.place(a, units.tap(a) * a.dilation), low = places.block_bytes(a) * a.plan.staged;
  const char* const from = memory + units.k_block(a) * places.block_bytes(a);
  const auto word_of = [&](int i, int part) {
    const char* const own = from + places.offset(columns.place[i] + shift, word) + part;
    return word < a.order.words() ? *reinterpret_cast<const Word*>(own) : Word{};
  };
#pragma unroll
  for (int b = 0; b < Columns / 16; ++b) {
    const Word upper = word_of(2 * b, 0), lower = word_of(2 * b + 1, 0);
    if constexpr (!IsSplit) {
#pragma unroll
      for (int m = 0; m < kChunkMatrices; ++m) multiply_words<Element>(sums[b][m], upper, lower, weights.high[m]);
    } else {
      const Word upper_low = word_of(2 * b, low), lower_low = word_of(2 * b + 1, low);
#pragma unroll
      for (int m = 0; m < kChunkMatrices; ++m) {
        float high[4] = {}, mixed[4] = {};
        multiply_words<Element>(high, upper, lower, weights.high[m]);
        multiply_words<Element>(mixed, upper, lower, weights.low[m]);
        multiply_words<Element>(mixed, upper_low, lower_low, weights.high[m]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[b][m][i] += fmaf(mixed[i], 1 / kLowScale, high[i]);
      }
    }
  }
}

// sums += the products of `count` k-blocks in shared memory. The next unit's weights are on their way meanwhile.
template <bool IsSplit, class Element, int Columns>
__device__ __forceinline__ void multiply_chunk(const ChunkArguments& a, const ChunkItem& item, int k_block, int count,
                                               const LaneColumns<Columns>& columns, const char* memory,
                                               ChunkSums<Columns>& sums) {
  ChunkUnits units(a, count);
  if (!units.has_next()) return;
  ChunkWeights<IsSplit> next = load_chunk_weights<IsSplit>(a, item, k_block, units);
#pragma unroll 1
  while (units.has_next()) {
    const ChunkWeights<IsSplit> weights = next;
    const ChunkUnits own = units;
    units.advance();
    if (units.has_next()) next = load_chunk_weights<IsSplit>(a, item, k_block, units);
    multiply_unit<IsSplit, Element, Columns>(a, columns, own, weights, memory, sums);
  }
}

}  // namespace sluice
