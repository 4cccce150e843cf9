// One token per sequence, where a state's row is known to have `Columns` columns and the rows of adjacent channels are
// contiguous. A thread has a lane of channels (update_lanes.cuh) of `Sequences` sequences, which share its taps.
//
// A thread reads rows of two or four columns in one access. Other rows go through shared memory:
//
//   global memory    | word 0 | word 1 | ...        a word a thread, not of its own rows
//   shared memory    | row 0, row 0, row 0 | row 1, row 1, row 1 | ...      each thread moves its own row
//
// All loads of a thread are in flight before the first is used.
#pragma once

#include "kernels/operators/causal_conv1d/update_lanes.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {

inline constexpr int kWordsSequences = 4;  // sequences per thread, if there are many
// Lanes of channels per SM that count as many: 24 warps. Not measured.
inline constexpr long long kWordsManyLanes = 24 * 32;

// The warp's words of a state's rows, which are contiguous.
template <int Words>
struct WarpWords {
  Word words[Words];

  __device__ __forceinline__ void load(const void* from, int count, int lane) {
#pragma unroll
    for (int w = 0; w < Words; ++w) {
      if (w * 32 + lane < count) words[w] = load_word(static_cast<const Word*>(from) + w * 32 + lane);
    }
  }
  __device__ __forceinline__ void store(void* to, int count, int lane) const {
#pragma unroll
    for (int w = 0; w < Words; ++w) {
      if (w * 32 + lane < count) store_word(static_cast<Word*>(to) + w * 32 + lane, words[w]);
    }
  }
};

// The rows of a lane of channels, as 32-bit numbers.
template <int Columns>
struct LaneRows {
  static constexpr bool kIsOneAccess = Columns == 2 || Columns == 4;
  static constexpr int kSharedLanes = kIsOneAccess ? 1 : 32 * Columns;  // lanes of a warp's sequence
  static constexpr int kWords = kIsOneAccess ? 1 : (Columns * 8 + 31) / 32;

  std::uint32_t lanes[Columns];
  WarpWords<kWords> warp;

  // `rows`: the warp's first; `count`: lanes that have channels, a multiple of four.
  __device__ __forceinline__ void load(const void* rows, int count, int lane) {
    if constexpr (kIsOneAccess) {
      if (lane < count) load_lanes<Columns>(static_cast<const std::uint32_t*>(rows) + lane * Columns, lanes);
    } else {
      warp.load(rows, count / 4 * Columns, lane);
    }
  }
  __device__ __forceinline__ void share(std::uint32_t* shared, int count, int lane) const {
    if constexpr (!kIsOneAccess) warp.store(shared, count / 4 * Columns, lane);
  }
  __device__ __forceinline__ void take(const std::uint32_t* shared, int lane) {
    if constexpr (!kIsOneAccess) {
#pragma unroll
      for (int j = 0; j < Columns; ++j) lanes[j] = shared[lane * Columns + j];
    }
  }
  __device__ __forceinline__ void give(std::uint32_t* shared, int lane) const {
    if constexpr (!kIsOneAccess) {
#pragma unroll
      for (int j = 0; j < Columns; ++j) shared[lane * Columns + j] = lanes[j];
    }
  }
  __device__ __forceinline__ void store(void* rows, const std::uint32_t* shared, int count, int lane) {
    if constexpr (Columns == 4) {
      if (lane < count) store_word(static_cast<Word*>(rows) + lane, Word{{lanes[0], lanes[1], lanes[2], lanes[3]}});
    } else if constexpr (Columns == 2) {
      if (lane < count) static_cast<uint2*>(rows)[lane] = make_uint2(lanes[0], lanes[1]);
    } else {
      warp.load(shared, count / 4 * Columns, lane);
      warp.store(rows, count / 4 * Columns, lane);
    }
  }
};

template <class Arguments, class Element, int Taps, int Dilation, int Columns, int Sequences>
__global__ void __launch_bounds__(kLanesThreads) update_words_kernel(const __grid_constant__ Arguments a) {
  constexpr int kEach = kLaneChannels<Element>;
  constexpr bool kHasChains = kHasLightChains<Arguments>;
  using Rows = LaneRows<Columns>;
  __shared__ __align__(16) std::uint32_t shared[kLanesWarps][Sequences][Rows::kSharedLanes];
  const WarpPosition warp = warp_position(a);
  const int lane = static_cast<int>(threadIdx.x % 32), c = warp.channel + lane * kEach;
  const int first = warp.row * Sequences, present = min(a.sequences - first, Sequences);
  const Element* const input = a.input + first * a.input_stride + c;
  Element* const output = a.output + first * a.output_stride + c;
  const bool has_channels = lane < warp.lanes;
  auto* const own_shared = shared[threadIdx.x / 32];
  await_previous();
  begin_next();
  if (warp.lanes <= 0) return;

  LaneTaps<Element, Taps, kHasChains> taps;
  std::uint32_t tokens[Sequences] = {};
  LaneOperands<Element> before[Sequences], behind[Sequences];
  if (has_channels) {
    taps.load(a, c);
#pragma unroll
    for (int r = 0; r < Sequences; ++r) {
      if (r >= present) continue;
      tokens[r] = load_lane(input + r * a.input_stride);
      if constexpr (kHasChains) {
        before[r].load(a.pre, first + r, c, 0);
        behind[r].load(a.post, first + r, c, 0);
      }
    }
  }
  Rows rows[Sequences];
  Element* states[Sequences];  // null: no slot
#pragma unroll
  for (int r = 0; r < Sequences; ++r) {
    states[r] = nullptr;
    if (r >= present) continue;
    long long slot = first + r;
    if (a.has_slots) {
      __builtin_assume(a.tensors.slots.exists());
      slot = slot_of(a.tensors, slot);
    }
    if (slot < 0) continue;
    states[r] = a.state + slot * a.state_stride + static_cast<long long>(warp.channel) * Columns;
    rows[r].load(states[r], warp.lanes, lane);
  }
  if (has_channels) taps.unpack(a, c);
#pragma unroll
  for (int r = 0; r < Sequences; ++r) {
    if (states[r] != nullptr) rows[r].share(own_shared[r], warp.lanes, lane);
  }
  if constexpr (!Rows::kIsOneAccess) __syncwarp();
#pragma unroll
  for (int r = 0; r < Sequences; ++r) {
    if (r >= present || !has_channels) continue;
    Element* const out = output + r * a.output_stride;
    if (states[r] == nullptr) {
      store_lane(out, 0);
      continue;
    }
    rows[r].take(own_shared[r], lane);
    float values[kEach], sums[kEach];
    unpack_lane<Element>(tokens[r], values);
    if constexpr (kHasChains) {
      if (a.pre.count > 0) {
        before[r].run(a.pre, values);
        tokens[r] = pack_lane<Element>(values);
        unpack_lane<Element>(tokens[r], values);
      }
    }
    Element columns[kEach * Columns], token[kEach];
    __builtin_memcpy(columns, rows[r].lanes, sizeof(columns));
    __builtin_memcpy(token, &tokens[r], sizeof(token));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      Element* const own = columns + i * Columns;
      sums[i] = taps.bias[i];
#pragma unroll
      for (int k = 0; k + 1 < Taps; ++k) {
        sums[i] = multiply_add(taps.taps[i][k], convert<float>(own[Columns - (Taps - 1 - k) * Dilation]), sums[i]);
      }
      sums[i] = multiply_add(taps.taps[i][Taps - 1], values[i], sums[i]);
#pragma unroll
      for (int j = 0; j + 1 < Columns; ++j) own[j] = own[j + 1];
      own[Columns - 1] = token[i];
    }
    if constexpr (kHasChains) {
      behind[r].run(a.post, sums);
    } else if (a.silu) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) sums[i] = silu_of<Element>(sums[i]);
    }
    __builtin_memcpy(rows[r].lanes, columns, sizeof(columns));
    rows[r].give(own_shared[r], lane);
    store_lane(out, pack_lane<Element>(sums));
  }
  if constexpr (!Rows::kIsOneAccess) __syncwarp();
#pragma unroll
  for (int r = 0; r < Sequences; ++r) {
    if (states[r] != nullptr) rows[r].store(states[r], own_shared[r], warp.lanes, lane);
  }
}

}  // namespace sluice
