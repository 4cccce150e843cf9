// Depthwise conv1d of half types as a product with a Toeplitz matrix, on tensor cores (mma.sync).
//
// The row itself is the first matrix, whose rows are overlapping windows; the taps are the second (fragment_layout.h).
// A team, which is a warp, or a block where the taps are many, takes consecutive segments of rows and has a ring of
// stages for their input. Taps of few steps are in its lanes' registers, taps of more steps in shared memory.
//
//   shared memory   | team 0: stage 0 | stage 1 | ... | taps || team 1: ...
//
//   global --cp.async--> stage --`pre`, where there is one--> window in registers --mma, step after step--> sums
//                                                                                                            |
//   global <--128 bytes a warp, or 16 bytes a lane where the chain has tensors---------------------------- chain
//
// Alignment costs nothing: a stage begins with an aligned word, and the taps are shifted by the distance to its first
// output's first tap. Padding costs nothing either: it is zeros in the stage.
#pragma once

#include "kernels/operators/conv1d/long_filter/fetch.cuh"
#include "kernels/operators/conv1d/long_filter/finish.cuh"
#include "kernels/operators/conv1d/long_filter/multiply.cuh"

namespace sluice {

// The warp tiles of a segment, a bit each, whose sums are not all finite. Out of line and after the others, because it
// needs their registers.
template <class Post, bool FewSteps, class Element>
__device__ __noinline__ void finish_within_windows(const LongFilterArguments<Element>& a, int index,
                                                   std::uint32_t input, unsigned warp_tiles) {
  const Segment<Element> segment(a, index);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float bias = a.bias_of(segment.channel);
#pragma unroll 1
  for (; warp_tiles != 0; warp_tiles &= warp_tiles - 1) {
    const int offset = (__ffs(static_cast<int>(warp_tiles)) - 1) * kOutputsPerWarp, begin = segment.begin + offset;
    const bool is_half = FewSteps && static_cast<int>(a.output_length) - begin <= kTileOutputs;
    float sums[kTilesPerWarp][4];
    multiply_within_windows(a, segment.channel, segment.shift, input + offset * static_cast<int>(sizeof(Element)),
                            is_half ? 1 : kTilesPerWarp, bias, lane, sums);
    finish_warp_tile<Post>(a, segment, begin, lane, sums);
  }
}

template <class Chains, bool FewSteps, class Element>
__device__ __forceinline__ void long_filter(const LongFilterArguments<Element>& a) {
  using Pre = typename Chains::Pre;
  using Post = typename Chains::Post;
  extern __shared__ Word shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const bool is_block = !FewSteps && a.team > 1;
  const Team<FewSteps> team{.lane = lane, .first_warp = is_block ? warp : 0, .all_warps = a.team};
  const int own_team = is_block ? 0 : warp, teams = is_block ? 1 : kLongFilterWarps;

  const int ring_bytes = a.depth * a.stage_bytes();
  const auto ring = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) +
                    own_team * (ring_bytes + (FewSteps ? 0 : tap_bytes(a.steps)));
  const std::uint32_t taps = ring + ring_bytes;
  const int position = static_cast<int>(blockIdx.x) * teams + own_team, longer = static_cast<int>(a.longer_teams);
  int index = position * static_cast<int>(a.segments_per_team) + min_of(position, longer);
  const int end = index + static_cast<int>(a.segments_per_team) + (position < longer ? 1 : 0);
  if (index >= end) return;

  Segment<Element> segment(a, index), ahead = segment;
  std::uint32_t stage = ring, ahead_stage = ring;
  int fetched = index;
  int channel = -1, shift = 0;
  float bias = 0.0f;
  uint2 few_taps[kFewSteps] = {};
  std::uint32_t pairs = taps;
  const int first_position = FewSteps ? tile_position(lane) : fragment_position(lane);
#pragma unroll 1
  for (; index < end; ++index) {
    // The previous segment's stage and taps are no longer read; the stage is filled next. One copy group for each
    // segment, even where it is empty.
    team.sync();
#pragma unroll 1
    for (; fetched < index + a.depth; ++fetched) {
      if (fetched < end) {
        fetch_segment(a, ahead, ahead_stage, team);
        ahead.advance(a);
      }
      commit_copies();
      ahead_stage += a.stage_bytes();
      if (ahead_stage == taps) ahead_stage = ring;
    }
    if (segment.channel != channel || segment.shift != shift) {
      if constexpr (FewSteps) {
        fetch_steps(a, segment.channel, lane, segment.shift, few_taps);
      } else {
        if (segment.channel != channel) fetch_taps(a, taps_of(a, segment.channel), taps, team);
        pairs = taps + tap_pair_byte(lane, segment.shift, a.steps);
      }
      channel = segment.channel, shift = segment.shift;
      bias = a.bias_of(channel);
    }
    wait_for_copies(a.depth - 1);
    team.sync();  // all threads' copies of the segment have arrived
    if (!Pre{a.pre}.empty()) {
      prepare_segment<Pre>(a, segment, stage, team);
      team.sync();
    }

    unsigned infinite = 0;
    const int begin_of_team = segment.begin + team.warp() * kOutputsPerWarp;
    const int stop = min_of(static_cast<int>(a.output_length), segment.begin + a.segment);
    std::uint32_t window = stage + (team.warp() * kOutputsPerWarp + first_position) * static_cast<int>(sizeof(Element));
#pragma unroll 1
    for (int begin = begin_of_team; begin < stop; begin += team.warps() * kOutputsPerWarp) {
      float sums[kTilesPerWarp][4];
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[i / 4][i % 4] = bias;
      if constexpr (!FewSteps) {
        multiply_many<Element>(window, pairs, a.steps, sums);
      } else if (stop - begin > kTileOutputs) {
        multiply_few<Element, kTilesPerWarp>(window, few_taps, a.steps, sums);
      } else {
        multiply_few<Element, 1>(window, few_taps, a.steps, sums);
      }
      if (__any_sync(0xffffffffu, is_any_infinite(sums))) {
        infinite |= 1u << ((begin - segment.begin) / kOutputsPerWarp);
      } else {
        finish_warp_tile<Post>(a, segment, begin, lane, sums);
      }
      window += team.warps() * kOutputsPerWarp * static_cast<int>(sizeof(Element));
    }
    if (infinite != 0) {
      finish_within_windows<Post, FewSteps>(a, index, stage, infinite);
      // Recomputed rather than kept in registers during the call.
      segment = Segment<Element>(a, index);
      ahead = Segment<Element>(a, min_of(fetched, end - 1));
      channel = -1;
    }
    segment.advance(a);
    stage += a.stage_bytes();
    if (stage == taps) stage = ring;
  }
}

template <bool FewSteps>
inline constexpr int kBlocks =
    long_filter_blocks(FewSteps ? LongFilterKernel::long_filter : LongFilterKernel::long_filter_many_steps);

// Without a chain, for results of the input's dtype.
template <class Element, bool FewSteps>
__global__ void __launch_bounds__(kLongFilterThreads, kBlocks<FewSteps>)
    plain_long_filter_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  long_filter<NoChains, FewSteps>(a);
}

template <class Element, bool FewSteps>
__global__ void __launch_bounds__(kLongFilterThreads, kBlocks<FewSteps>)
    interpreted_long_filter_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  using Chains = std::conditional_t<FewSteps, InterpretedChains<Element, true>, ElementwiseChains<Element>>;
  long_filter<Chains, FewSteps>(a);
}

template <class Element, bool FewSteps>
Kernel<LongFilterArguments<Element>> long_filter_form(const Conv1dParams& params) {
  return is_plain(params) ? plain_long_filter_kernel<Element, FewSteps>
                          : interpreted_long_filter_kernel<Element, FewSteps>;
}

template <class Element>
struct Interpreted<LongFilterKernel::long_filter, Element> {
  static auto of(const Conv1dParams& params) { return long_filter_form<Element, true>(params); }
};

template <class Element>
struct Interpreted<LongFilterKernel::long_filter_many_steps, Element> {
  static auto of(const Conv1dParams& params) { return long_filter_form<Element, false>(params); }
};

}  // namespace sluice
