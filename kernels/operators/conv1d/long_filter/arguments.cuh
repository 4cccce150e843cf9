// Arguments of the long filters' kernels, and the segments of a row.
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/operators/conv1d/long_filter/policy.h"

namespace sluice {

// Tensors, chains and edges are as in the depthwise kernels.
template <class Element>
struct LongFilterArguments : Conv1dArguments<Element>, LongFilterPlan {
  int depth;
  FastDivisor by_segments, by_batch, by_dilation;

  __device__ int stage_bytes() const { return stage_words * kWordBytes; }
};

template <class Element>
void fill(LongFilterArguments<Element>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(static_cast<Conv1dArguments<Element>&>(a), params);
  static_cast<LongFilterPlan&>(a) = plan.long_filter;
  a.depth = plan.depth;
  a.by_across = FastDivisor(plan.long_filter.channel_blocks);
  a.by_batch = FastDivisor(params.batch);
  a.by_segments = FastDivisor(plan.long_filter.segments_per_row);
  a.by_dilation = FastDivisor(params.dilation);
}

// Whether a call has neither a chain nor a result of another dtype.
inline bool is_plain(const Conv1dParams& params) {
  return params.pre.empty() && params.post.empty() && params.output.dtype == params.input.dtype;
}

// Outputs `begin`, ... of a row. Its pipeline stage begins with the aligned input word that contains its first tap:
//
//   input   ...|........|..xxxxxx|xxxxxxxx|      |: 16-byte boundaries
//              ^start     ^start + shift: the first tap of output `begin`
//
// Output `begin` is at a 16-byte boundary as well, so the first segment may begin before its row does. Segments are
// ordered by channel, then sample, then position in the row, so that a warp keeps its taps as long as it can. Plans
// ensure that positions, rows and segments fit into 31 bits.
template <class Element>
struct Segment {
  int in_row, batch, channel;  // `in_row`: index in its row
  int begin, shift;
  const Element* input;  // position 0 of the row
  long long result;      // offset of the row in the output

  __device__ __forceinline__ Segment(const LongFilterArguments<Element>& a, int index) {
    const int row = static_cast<int>(a.by_segments.quotient_of_31_bits(index));
    in_row = index - row * static_cast<int>(a.segments_per_row);
    channel = static_cast<int>(a.by_batch.quotient_of_31_bits(row));
    batch = row - channel * static_cast<int>(a.batch);
    set_row(a);
  }
  __device__ __forceinline__ void advance(const LongFilterArguments<Element>& a) {
    if (++in_row < static_cast<int>(a.segments_per_row)) {
      begin += a.segment;
      return;
    }
    in_row = 0;
    if (++batch < static_cast<int>(a.batch)) {
      input += a.input.strides[0];
      result += a.output.strides[0];
      return set_position(a);
    }
    batch = 0;
    if (++channel < static_cast<int>(a.channels)) set_row(a);
  }
  __device__ __forceinline__ void set_row(const LongFilterArguments<Element>& a) {
    input = a.input.template as<const Element>() + batch * a.input.strides[0] + input_channel(a) * a.input.strides[1];
    result = batch * a.output.strides[0] + channel * a.output.strides[1];
    set_position(a);
  }
  __device__ __forceinline__ void set_position(const LongFilterArguments<Element>& a) {
    const auto element = reinterpret_cast<std::uintptr_t>(a.output.data) / size_of(a.output_type()) + result;
    begin = in_row * a.segment - static_cast<int>(element % kVectorOutputs);
    const int first = begin - static_cast<int>(a.padding);
    shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(input + first) / sizeof(Element)) & (kVectorOutputs - 1);
  }
  __device__ __forceinline__ int input_channel(const LongFilterArguments<Element>& a) const {
    return static_cast<int>(a.by_multiplier.quotient_of_31_bits(channel));
  }
  __device__ __forceinline__ int start(const LongFilterArguments<Element>& a) const {
    return begin - static_cast<int>(a.padding) - shift;
  }
  // Outputs of the row from `begin` on.
  __device__ __forceinline__ int left(const LongFilterArguments<Element>& a) const {
    return max_of(static_cast<int>(a.output_length) - begin, 0);
  }
  // Input words that its tiles read, including those multiplied by zero taps.
  template <bool FewSteps>
  __device__ __forceinline__ int words(const LongFilterArguments<Element>& a) const {
    constexpr int kAtOnce = outputs_at_once(FewSteps);
    const int outputs = min_of((left(a) + kAtOnce - 1) & -kAtOnce, a.segment);
    return window_positions(outputs, a.steps) >> 3;
  }
};

// The warps that share a ring: their threads in order, and their barrier. With few steps a team is one warp.
template <bool FewSteps>
struct Team {
  int lane, first_warp, all_warps;

  __device__ __forceinline__ int warp() const { return FewSteps ? 0 : first_warp; }
  __device__ __forceinline__ int warps() const { return FewSteps ? 1 : all_warps; }
  __device__ __forceinline__ int rank() const { return warp() * 32 + lane; }
  __device__ __forceinline__ int ranks() const { return warps() * 32; }
  __device__ __forceinline__ void sync() const {
    if (warps() > 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
};

}  // namespace sluice
