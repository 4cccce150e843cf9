// A short chunk of a depthwise transposed convolution: results and overlaps in one kernel.
//
//   sums       |yyyyyyyyrrr|      y: the chunk's outputs, after the row's old overlap is added to the first of them
//   overlap            |rrr|      r: the new overlap
//
// Blocks have all sums of their channels, a thread each: they read old overlaps before they write the new.
#pragma once

#include "kernels/operators/causal_conv1d/sequences.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

inline constexpr int kDepthwiseOverlapSums = 256;  // most sums of a channel

// Operands are (row, channel, position). `states.before` is the cache of overlaps, of the sums' dtype.
struct DepthwiseOverlapParams {
  Operand<3> input, output;
  Operand<3> weight;  // (channel of the input, channel of its results, tap)
  Operand<1> bias;    // may be absent
  Sequences states;
  long long channels, of_channel;  // results' channels, and as many of an input's channel
  long long length, overlap;       // inputs of a row, and columns of an overlap
  int taps, stride, dilation;
  Program pre, post;
  Operand<3> pre_operands[kMaxOperands], post_operands[kMaxOperands];

  SLUICE_HOST_DEVICE long long results() const { return length * stride; }
  SLUICE_HOST_DEVICE long long sums() const { return results() + overlap; }
};

}  // namespace sluice
