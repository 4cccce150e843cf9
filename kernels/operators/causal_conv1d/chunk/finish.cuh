// What follows the products: the sums of a block's warps, then of a tile's blocks, then results and overlaps.
#pragma once

#include <cuda/atomic>

#include "kernels/operators/causal_conv1d/chunk/product.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

inline constexpr int kChannelRuns = kChunkChannels / kChunkRun;

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// A tile's sums in shared memory: run i of channels, after the runs of the columns before.
__device__ __forceinline__ float4* run_of(float* shared, int i) {
  return reinterpret_cast<float4*>(shared + i / kChannelRuns * kChunkSumsPitch + i % kChannelRuns * kChunkRun);
}

// Adds up the warps' sums in their order: (column, channel) of the tile in shared memory.
template <int LaneColumns>
__device__ __forceinline__ void join_warps(const ChunkArguments& a, const ChunkSums<LaneColumns>& sums, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int columns = a.n.columns, warps = kChunkWarps >> a.n.warp_columns_log;
  const int row_bytes = a.n.row_bytes, own_columns = warp & ((1 << a.n.warp_columns_log) - 1);
  const int first = matrix_row(lane % 4 * 2, row_bytes), second = matrix_row(lane % 4 * 2 + 1, row_bytes);
  const int column = (warp >> a.n.warp_columns_log) * columns + own_columns * LaneColumns + lane / 4;
  __syncthreads();  // the stages have been read
#pragma unroll
  for (int i = 0; i < LaneColumns / 8; ++i) {
    float* const to = shared + (column + i * 8) * kChunkSumsPitch;
#pragma unroll
    for (int m = 0; m < kChunkMatrices; ++m) {
      to[m * 8 + first] = sums[i / 2][m][i % 2 * 2];
      to[m * 8 + second] = sums[i / 2][m][i % 2 * 2 + 1];
    }
  }
  __syncthreads();
  if (warps == 1) return;
#pragma unroll 1
  for (int i = threadIdx.x; i < columns * kChannelRuns; i += kChunkThreads) {
    float4* const own = run_of(shared, i);
    float4 sum = *own;
#pragma unroll
    for (int w = 1; w < kChunkWarps; ++w) {
      if (w < warps) sum = sum + own[w * columns * (kChunkSumsPitch / kChunkRun)];
    }
    *own = sum;
  }
  __syncthreads();
}

// Adds up the splits' sums in their order. Returns whether this block is the last of the tile, which has them all.
__device__ __forceinline__ bool join_splits(const ChunkArguments& a, const ChunkItem& item, float* shared,
                                            int* is_last) {
  const int runs = a.n.columns * kChannelRuns;
  const long long of_split = static_cast<long long>(a.n.tiles) * runs;
  float4* const sums = reinterpret_cast<float4*>(a.n.sums) + static_cast<long long>(item.tile) * runs;
#pragma unroll 1
  for (int i = threadIdx.x; i < runs; i += kChunkThreads) __stcg(sums + item.split * of_split + i, *run_of(shared, i));
  __syncthreads();
  if (threadIdx.x == 0) {  // it releases and acquires for all threads of the block, which meet it at the barriers
    const cuda::atomic_ref<unsigned, cuda::thread_scope_device> counter(a.n.counters[item.tile]);
    *is_last = counter.fetch_add(1, cuda::memory_order_acq_rel) + 1 == static_cast<unsigned>(a.n.splits);
  }
  __syncthreads();
  if (*is_last == 0) return false;
#pragma unroll 1
  for (int i = threadIdx.x; i < runs; i += kChunkThreads) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    constexpr int kAhead = 8;  // splits whose sums are on their way
#pragma unroll 1
    for (int s = 0; s < a.n.splits; s += kAhead) {
      float4 own[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        own[k] = s + k < a.n.splits ? __ldcg(sums + (s + k) * of_split + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum = sum + own[k];
    }
    *run_of(shared, i) = sum;
  }
  __syncthreads();
  return true;
}

// What a row of the weight of a transposed convolution computes.
struct ComponentRow {
  int channel, component;

  __device__ __forceinline__ ComponentRow(const ChunkArguments& a, int weight_row) {
    const int quotient = static_cast<int>(a.by_weight_rows.quotient_of_31_bits(weight_row));
    const int rest = weight_row - quotient * static_cast<int>(a.by_weight_rows.divisor);
    channel = a.by_components ? quotient : rest;
    component = a.by_components ? rest : quotient;
  }
};

// The bias of each of a tile's rows of the weight; it is loaded before the previous kernel is done.
template <class Element>
__device__ __forceinline__ void load_bias(const ChunkArguments& a, const ChunkItem& item, float* bias) {
  const int own = static_cast<int>(threadIdx.x), weight_row = item.first_channel + own;
  if (own >= kChunkChannels) return;
  const int channel = a.t.spread > 0 ? ComponentRow(a, weight_row).channel : weight_row;
  const bool exists = a.t.bias.exists() && channel < a.t.channels;
  bias[own] = exists ? convert<float>(a.t.bias.template as<Element>()[channel * a.t.bias.strides[0]]) : 0.0f;
}

// Adjacent results of a tile: positions of a channel (a.along), or rows of the weight of a column, which are channels
// or a channel's components. `count` is 0 where there are none.
struct ResultRun {
  int column, weight_row;  // their places in the tile
  int row, channel, position;
  int count = 0;
  int dimension;  // along which they are adjacent: 1, channels, or 2, positions

  __device__ __forceinline__ ResultRun(const ChunkArguments& a, const ChunkItem& item, int i) {
    if (a.along) {  // a warp has eight channels of sixteen positions
      column = (i / 128 * 4 + i / 8 % 4) * kChunkRun;
      weight_row = i / 32 % 4 * 8 + i % 8;
    } else {
      column = a.single ? i / kChunkChannels : i / kChannelRuns;
      weight_row = a.single ? i % kChunkChannels : i % kChannelRuns * kChunkRun;
    }
    const int own_row = static_cast<int>(a.n.by_frames.quotient_of_31_bits(column));
    const int frame = item.first_frame + column - own_row * a.n.tile_frames;
    const int left = min_of(item.first_frame + a.n.tile_frames, a.n.frames) - frame;
    row = item.first_row + own_row, channel = item.first_channel + weight_row, position = frame;
    dimension = a.along || a.by_components ? 2 : 1;
    bool exists = column < a.n.columns && own_row < a.n.tile_rows && row < a.n.rows && left > 0;
    if (a.t.spread > 0) {
      const ComponentRow own(a, channel);
      channel = own.channel, position = frame * a.t.spread + own.component;
      exists = exists && own.component < a.t.spread;
    }
    const int channels = static_cast<int>(a.t.channels) - channel;
    if (exists && channels > 0) {
      count = min_of(a.single ? 1 : kChunkRun, a.along ? left : a.by_components ? kChunkRun : channels);
    }
  }
  __device__ __forceinline__ Place place(const long long* strides) const {
    return {row * strides[0] + channel * strides[1] + position * strides[2], strides[dimension], 0, count, 0};
  }
};

// Adds the old overlap to sums; sums that are no results yet are the new overlap.
__device__ __forceinline__ void finish_overlap(const ChunkArguments& a, ResultRun& run, float* values) {
  const long long results = a.t.chunk.length * a.t.spread, step = run.dimension == 2 ? a.t.channels : 1;
  const float* const old = a.overlaps + (run.row * a.t.overlap + run.position) * a.t.channels + run.channel;
#pragma unroll
  for (int i = 0; i < kChunkRun; ++i) {
    if (i < run.count && run.position + (run.dimension == 2 ? i : 0) < a.t.overlap) values[i] += old[i * step];
  }
  if (run.position < results) return;
  const Operand<3>& cache = a.t.chunk.states.before;
  const long long slot = a.t.chunk.states.slot_of(run.row);
  float* const to = cache.template as<float>() + slot * cache.strides[0] + run.channel * cache.strides[1] +
                    (run.position - results) * cache.strides[2];
#pragma unroll
  for (int i = 0; i < kChunkRun; ++i) {
    if (i < run.count && slot >= 0) to[i * cache.strides[run.dimension]] = values[i];
  }
  run.count = 0;
}

// The results and overlaps of a tile; zeros in rows without a slot. Two runs of a thread load their operands at a time.
template <class Chain, class Element>
__device__ __forceinline__ void finish_tile(const ChunkArguments& a, const ChunkItem& item, const float* shared,
                                            const float* bias) {
  const int runs = a.n.columns * (a.single ? kChunkChannels : kChannelRuns);
#pragma unroll 1
  for (int i = threadIdx.x; i < runs; i += 2 * kChunkThreads) {
    ResultRun own[2] = {ResultRun(a, item, i), ResultRun(a, item, i + kChunkThreads)};
    float values[2 * kChunkRun];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* const from = shared + own[r].column * kChunkSumsPitch + own[r].weight_row;
#pragma unroll
      for (int k = 0; k < kChunkRun; ++k) {
        values[r * kChunkRun + k] = k < own[r].count ? from[k * (a.along ? kChunkSumsPitch : 1)] : 0.0f;
      }
      if (a.t.spread > 0 && own[r].count > 0) finish_overlap(a, own[r], values + r * kChunkRun);
#pragma unroll
      for (int k = 0; k < kChunkRun; ++k) {
        if (k < own[r].count) values[r * kChunkRun + k] += bias[own[r].weight_row + (a.along ? 0 : k)];
      }
    }
    run_chain<Chain, kChunkRun, 2>(
        a.post, [&](const long long* strides, int r) { return own[r].place(strides); }, values);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own[r].count == 0) continue;
      if (a.t.chunk.states.slot_of(own[r].row) < 0) {
#pragma unroll
        for (int k = 0; k < kChunkRun; ++k) values[r * kChunkRun + k] = 0.0f;
      }
      const Place place = own[r].place(a.t.output.strides);
      store_elements<Element, kChunkRun>(a.t.output.template as<Element>() + place.offset, place.stride, 0, place.last,
                                         values + r * kChunkRun);
    }
  }
}

}  // namespace sluice
