// What the long filters' kernel is given, and where a segment of a row lies.
#pragma once

#include "kernels/conv1d/depthwise/arguments.cuh"
#include "kernels/conv1d/long_filter/policy.h"

namespace sluice {

// With the tensors, the chains and the edges of the depthwise kernels.
template <class Element>
struct LongFilterArguments : Conv1dArguments<Element>, LongFilterPlan {
  FastDivisor by_segments, by_dilation;

  __device__ int stage_bytes() const { return LongFilterPlan::stage_words * kWordBytes; }
};

// Outputs `begin`, ... of a row. Its stage begins with the aligned word of the input that its first tap stands in:
//
//   input   ...|........|..xxxxxx|xxxxxxxx|      |: 16-byte boundaries
//              ^start     ^start + shift: the first tap of output `begin`
//
// Output `begin` is at a 16-byte boundary as well, so the first segment may begin before its row does. Plans see to it
// that positions, rows and segments are counted in 31 bits.
template <class Element>
struct Segment {
  int batch, channel, input_channel;
  int begin, start;
  int shift, groups;  // the latter: of outputs that exist
  long long result;   // where the row begins in the output

  __device__ __forceinline__ Segment(const LongFilterArguments<Element>& a, int index) {
    const int row = static_cast<int>(a.by_segments.quotient_of_31_bits(index));
    batch = static_cast<int>(a.by_channels.quotient_of_31_bits(row));
    channel = row - batch * static_cast<int>(a.channels);
    input_channel = static_cast<int>(a.by_multiplier.quotient_of_31_bits(channel));
    result = batch * a.output.strides[0] + channel * a.output.strides[1];
    begin = (index - row * static_cast<int>(a.segments_per_row)) * a.segment -
            a.template misalignment<kVectorOutputs>(batch, channel);
    asm volatile("" : "+r"(begin), "+l"(result));  // kept, not computed anew for every group
    const int first = begin - static_cast<int>(a.padding);
    shift =
        static_cast<int>(reinterpret_cast<std::uintptr_t>(row_of(a) + first) / sizeof(Element)) & (kVectorOutputs - 1);
    start = first - shift;
    const int left = ceil_div(max_of(static_cast<int>(a.output_length) - begin, 0), kGroupOutputs);
    groups = min_of(left, a.segment / kGroupOutputs);
  }
  __device__ __forceinline__ const Element* row_of(const LongFilterArguments<Element>& a) const {
    return a.input.template as<const Element>() + batch * a.input.strides[0] + input_channel * a.input.strides[1];
  }
  __device__ __forceinline__ int words(const LongFilterArguments<Element>& a) const {
    return window_positions(groups, a.steps) / kWordElements<Element>;
  }
};

}  // namespace sluice
