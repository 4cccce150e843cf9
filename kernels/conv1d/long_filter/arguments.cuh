// What the long filters' kernel is given, and where a segment of a row lies.
#pragma once

#include "kernels/conv1d/depthwise/arguments.cuh"
#include "kernels/conv1d/long_filter/policy.h"

namespace sluice {

// With the tensors, the chains and the edges of the depthwise kernels.
template <class Element>
struct LongFilterArguments : Conv1dArguments<Element>, LongFilterPlan {
  FastDivisor by_segments, by_batch, by_dilation;

  __device__ int stage_bytes() const { return LongFilterPlan::stage_words * kWordBytes; }
};

// Outputs `begin`, ... of a row. Its stage begins with the aligned word of the input that its first tap stands in:
//
//   input   ...|........|..xxxxxx|xxxxxxxx|      |: 16-byte boundaries
//              ^start     ^start + shift: the first tap of output `begin`
//
// Output `begin` is at a 16-byte boundary as well, so the first segment may begin before its row does. Segments follow
// each other in a row, rows in the batch, and channels come last: a warp keeps its taps as long as it can. Plans see to
// it that positions, rows and segments are counted in 31 bits.
template <class Element>
struct Segment {
  int part, batch, channel;  // the first: of its row
  int begin, shift;
  const Element* input;  // of the row, position 0
  long long result;      // where the row begins in the output

  __device__ __forceinline__ Segment(const LongFilterArguments<Element>& a, int index) {
    const int row = static_cast<int>(a.by_segments.quotient_of_31_bits(index));
    part = index - row * static_cast<int>(a.segments_per_row);
    channel = static_cast<int>(a.by_batch.quotient_of_31_bits(row));
    batch = row - channel * static_cast<int>(a.batch);
    set_row(a);
  }
  __device__ __forceinline__ void advance(const LongFilterArguments<Element>& a) {
    if (++part < static_cast<int>(a.segments_per_row)) {
      begin += a.segment;
      return;
    }
    part = 0;
    if (++batch < static_cast<int>(a.batch)) {
      input += a.input.strides[0];
      result += a.output.strides[0];
      return set_places(a);
    }
    batch = 0;
    if (++channel < static_cast<int>(a.channels)) set_row(a);
  }
  __device__ __forceinline__ void set_row(const LongFilterArguments<Element>& a) {
    input = a.input.template as<const Element>() + batch * a.input.strides[0] + input_channel(a) * a.input.strides[1];
    result = batch * a.output.strides[0] + channel * a.output.strides[1];
    set_places(a);
  }
  __device__ __forceinline__ void set_places(const LongFilterArguments<Element>& a) {
    const auto place = reinterpret_cast<std::uintptr_t>(a.output.data) / size_of(a.output_type()) + result;
    begin = part * a.segment - static_cast<int>(place % kVectorOutputs);
    const int first = begin - static_cast<int>(a.padding);
    shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(input + first) / sizeof(Element)) & (kVectorOutputs - 1);
  }
  __device__ __forceinline__ int input_channel(const LongFilterArguments<Element>& a) const {
    return static_cast<int>(a.by_multiplier.quotient_of_31_bits(channel));
  }
  __device__ __forceinline__ int start(const LongFilterArguments<Element>& a) const {
    return begin - static_cast<int>(a.padding) - shift;
  }
  // Outputs from `begin` on that exist, the segment's or later ones.
  __device__ __forceinline__ int left(const LongFilterArguments<Element>& a) const {
    return max_of(static_cast<int>(a.output_length) - begin, 0);
  }
  // Of the input, that its groups or tiles multiply with something, be it zero.
  template <bool FewSteps>
  __device__ __forceinline__ int words(const LongFilterArguments<Element>& a) const {
    constexpr int kAtOnce = outputs_at_once(FewSteps);
    const int outputs = min_of((left(a) + kAtOnce - 1) & -kAtOnce, a.segment);
    return window_positions(outputs, a.steps) >> 3;
  }
};

// The warps that share a ring: their threads in order, and how they wait for each other. A team of few steps is a warp.
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
