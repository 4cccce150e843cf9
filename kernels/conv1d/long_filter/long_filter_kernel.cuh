// Depthwise conv1d of half types as a product with a Toeplitz matrix, on tensor cores (mma.sync).
//
// The row is the first matrix already: its rows are windows that overlap, an address apart. The taps are the second one
// (places.h). A warp takes segments of rows, one behind another, and shares nothing with the others of its block: it
// has a ring of stages for its segments' input, and the taps of its row in the order of the lanes' registers.
//
//   shared memory   | warp 0: stage 0 | stage 1 | ... | taps || warp 1: ...
//
//   global --cp.async--> stage --`pre`, where there is one--> window in registers --mma, tap after tap--> sums
//                                                                                          |  exchanged among four
//                                                                                          lanes
//   global <--16 bytes a lane---------------------------------------------------- chain -- vectors of eight neighbours
//
// Alignment costs nothing: a stage begins with an aligned word, and how far its first output's first tap stands behind
// that shifts the taps. Nor does padding, which is zeros in the stage.
#pragma once

#include "kernels/conv1d/long_filter/fetch.cuh"
#include "kernels/conv1d/long_filter/finish.cuh"
#include "kernels/conv1d/long_filter/multiply.cuh"
#include "kernels/stages/no_chain.cuh"

namespace sluice {

// Those groups of a segment, a bit each, whose sums are not all finite. Out of line, and behind the others: the
// registers are theirs.
template <class Post, class Element>
__device__ __noinline__ void finish_within_windows(const LongFilterArguments<Element>& a, int index,
                                                   std::uint32_t input, std::uint32_t taps, unsigned groups) {
  const Segment<Element> segment(a, index);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float bias = a.bias_of(segment.channel);
#pragma unroll 1
  for (int group = 0; group < segment.groups; ++group) {
    if ((groups >> group & 1) == 0) continue;
    float sums[kGroupTiles][4];
    multiply_within_windows(a, segment, input + group * kGroupOutputs * static_cast<int>(sizeof(Element)), taps, bias,
                            lane, sums);
    finish_group<Post>(a, segment, group, lane, sums);
  }
}

template <class Chains, class Element>
__device__ __forceinline__ void long_filter(const LongFilterArguments<Element>& a) {
  using Pre = typename Chains::Pre;
  using Post = typename Chains::Post;
  extern __shared__ Word shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int ring_bytes = a.depth * a.stage_bytes(), warp_bytes = ring_bytes + (a.steps + 1) * kStepBytes;
  const auto ring = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + warp * warp_bytes;
  const std::uint32_t taps = ring + ring_bytes + lane * 8;  // the lane's
  const int each = static_cast<int>(a.segments_per_warp), segments = static_cast<int>(a.segments);
  int index = (static_cast<int>(blockIdx.x) * kLongFilterWarps + warp) * each;
  const int end = min_of(index + each, segments);

  // One group of copies a segment, be there one or not.
  int ahead = index, ahead_stage = 0;
  const auto fetch_next = [&] {
    if (ahead < end) fetch_segment(a, Segment<Element>(a, ahead), ring + ahead_stage * a.stage_bytes(), lane);
    commit_copies();
    ++ahead;
    if (++ahead_stage == a.depth) ahead_stage = 0;
  };
  int channel = -1, shift = 0;
  float bias = 0.0f;
  for (int stage = 0; index < end; ++index) {
    // Nobody reads the segment before any more, whose stage is the next to be filled.
    __syncwarp();
    while (ahead < index + a.depth) fetch_next();
    const Segment<Element> segment(a, index);
    const std::uint32_t input = ring + stage * a.stage_bytes();
    if (segment.channel != channel || segment.shift != shift) {
      channel = segment.channel, shift = segment.shift;
      fetch_taps(a, segment, taps, lane);
      bias = a.bias_of(channel);
    }
    wait_for_copies(a.depth - 1);
    __syncwarp();  // the segment is there, whoever fetched it
    if (!Pre{a.pre}.empty()) {
      prepare_segment<Pre>(a, segment, input, lane);
      __syncwarp();
    }

    unsigned infinite = 0;
#pragma unroll 1
    for (int group = 0; group < segment.groups; ++group) {
      const std::uint32_t from = input + group * kGroupOutputs * static_cast<int>(sizeof(Element));
      float sums[kGroupTiles][4], total = 0.0f;  // the latter is finite only where all are
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[sum_tile(i)][sum_register(i)] = bias;
      multiply_group<Element, /*OnlyFinite=*/false>(from + fragment_position(lane) * sizeof(Element), taps, a.steps,
                                                    sums);
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) total += sums[sum_tile(i)][sum_register(i)];
      if (__any_sync(0xffffffffu, !is_finite(total))) {
        infinite |= 1u << group;
      } else {
        finish_group<Post>(a, segment, group, lane, sums);
      }
    }
    if (infinite != 0) finish_within_windows<Post>(a, index, input, taps, infinite);
    if (++stage == a.depth) stage = 0;
  }
}

// Without a chain.
template <class Element>
__global__ void __launch_bounds__(kLongFilterThreads, kLongFilterBlocks)
    plain_long_filter_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  long_filter<NoChains>(a);
}

template <class Element>
__global__ void __launch_bounds__(kLongFilterThreads, kLongFilterBlocks)
    interpreted_long_filter_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  long_filter<InterpretedChains<Element, true>>(a);
}

}  // namespace sluice
