// What follows the products: the sums of a block's warps, then, behind the grid's barrier, results, states and
// overlaps.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/multiply.cuh"
#include "kernels/operators/causal_conv1d/new_state.cuh"

namespace sluice {

inline constexpr int kSumPitch = kChunkChannels + 2;  // floats of a column of a warp's sums

// Adds up the warps' sums in their order and gives each to `use(column, channel, sum)`, by all threads of the block.
template <int Columns, class Use>
__device__ __forceinline__ void join_warps(const ChunkSums<Columns>& sums, char* memory, const Use& use) {
  auto* const shared = reinterpret_cast<float*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();  // the windows have been read
#pragma unroll
  for (int b = 0; b < Columns / 16; ++b) {
#pragma unroll
    for (int m = 0; m < kChunkMatrices; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* const to = shared + (warp * Columns + b * 16 + half * 8 + lane / 4) * kSumPitch + m * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = make_float2(sums[b][m][2 * half], sums[b][m][2 * half + 1]);
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Columns * kChunkChannels; i += kChunkThreads) {
    const int column = i / kChunkChannels, channel = i % kChunkChannels;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kChunkWarps; ++w) sum += shared[(w * Columns + column) * kSumPitch + channel];
    use(column, channel, sum);
  }
  __syncthreads();  // the memory is free
}

// Bias, `post` and the store of a result; zero in rows without a slot.
template <class Chain, class Element>
__device__ __forceinline__ void store_result(const ChunkArguments& a, long long row, bool has_slot, int channel,
                                             long long position, float sum) {
  const auto place_of = [&](const long long* strides, int) {
    return Place{row * strides[0] + channel * strides[1] + position * strides[2], 0, 0, 1, 0};
  };
  float values[1] = {sum};
  if (a.bias.exists()) values[0] += load_as<float>(a.bias.data, a.bias.dtype, channel * a.bias.strides[0]);
  run_chain<Chain, 1, 1>(a.post, place_of, values);
  const Place place = place_of(a.output.strides, 0);
  a.output.template as<Element>()[place.offset] = convert<Element>(has_slot ? values[0] : 0.0f);
}

// The joined sum of a column and a row of the weight.
__device__ __forceinline__ float sum_of(const ChunkArguments& a, long long row, long long frame, int weight_row) {
  const int own_row = static_cast<int>(row) % a.plan.rows, own_frame = static_cast<int>(frame) % a.plan.frames;
  const long long columns = row / a.plan.rows * a.by_frame_tiles.divisor + frame / a.plan.frames;
  const long long tile = columns * a.plan.channel_tiles + weight_row / kChunkChannels;
  const long long of_tile = static_cast<long long>(a.plan.columns) * kChunkChannels;
  const float* from =
      a.sums + tile * of_tile + (own_row * a.plan.frames + own_frame) * kChunkChannels + weight_row % kChunkChannels;
  float sum = 0.0f;
  for (int s = 0; s < a.plan.splits; ++s)
    sum += __ldcg(from + s * of_tile * a.plan.column_tiles * a.plan.channel_tiles);
  return sum;
}

__device__ __forceinline__ long long grid_threads() { return static_cast<long long>(gridDim.x) * kChunkThreads; }
__device__ __forceinline__ long long grid_thread() {
  return static_cast<long long>(blockIdx.x) * kChunkThreads + threadIdx.x;
}

// All results of a convolution whose sums are in memory.
template <class Chain, class Element>
__device__ __forceinline__ void finish_results(const ChunkArguments& a) {
  const long long all = a.rows * a.frames * a.channels;
  for (long long i = grid_thread(); i < all; i += grid_threads()) {
    const long long row = i / (a.frames * a.channels), rest = i - row * a.frames * a.channels;
    const long long frame = rest / a.channels;
    const int channel = static_cast<int>(rest - frame * a.channels);
    store_result<Chain, Element>(a, row, a.states.slot_of(row) >= 0, channel, frame, sum_of(a, row, frame, channel));
  }
}

// The results and the overlap of a row's channel, from the first position on: an old overlap's column is read before it
// is written.
template <class Chain, class Element>
__device__ __forceinline__ void finish_overlaps(const ChunkArguments& a) {
  const Operand<3>& cache = a.states.before;
  const long long results = a.length * a.spread;
  for (long long i = grid_thread(); i < a.rows * a.channels; i += grid_threads()) {
    const long long row = i / a.channels, slot = a.states.slot_of(row);
    const int channel = static_cast<int>(i - row * a.channels);
    const bool continues = slot >= 0 && a.overlap > 0 && a.states.has_history(row);
    float* const overlap =
        cache.template as<float>() + max_of(slot, 0LL) * cache.strides[0] + channel * cache.strides[1];
    for (long long p = 0; p < results + a.overlap; ++p) {
      const long long weight_row = channel * a.channel_rows + p % a.spread * a.component_rows;
      float sum = sum_of(a, row, p / a.spread, static_cast<int>(weight_row));
      if (continues && p < a.overlap) sum += overlap[p * cache.strides[2]];
      if (p < results) {
        store_result<Chain, Element>(a, row, slot >= 0, channel, p, sum);
      } else if (slot >= 0) {
        overlap[(p - results) * cache.strides[2]] = sum;
      }
    }
  }
}

// A row's channel of the new state, from the oldest column on.
__device__ __forceinline__ void replace_states(const ChunkArguments& a) {
  const WindowParams window{.input = a.input,
                            .window = {},
                            .states = a.states,
                            .channels = a.input_channels,
                            .length = a.length,
                            .history = a.history,
                            .padding = a.padding};
  for (long long i = grid_thread(); i < a.rows * a.input_channels; i += grid_threads()) {
    const long long row = i / a.input_channels, slot = a.states.slot_of(row);
    if (slot < 0) continue;
    const NewState state(window, row, slot, i - row * a.input_channels);
    for (long long j = 0; j < a.states.columns; ++j) state.store(j, state.bits(j));
  }
}

}  // namespace sluice
