// conv1d, depthwise: output[b, c, t] = bias[c] + sum_k weight[c, k] input[b, c / multiplier, t stride - padding + k dilation],
// with a chain on the input before it is padded (pre) and one on the result (post).
#pragma once

#include "kernels/pipeline/plan.h"
#include "kernels/stages/program.h"

namespace sluice {

// Strides in elements. Three-dimensional ones are (batch, channel, position).
struct Conv1dParams {
  const void* input;
  const void* weight;
  const void* bias;     // may be null
  const void* history;  // (batch, channel, padding): the values before the first position; null means zeros
  void* output;
  DType input_dtype, weight_dtype, bias_dtype, history_dtype, output_dtype;
  long long batch, channels, length, output_length;  // channels of the output
  int multiplier, taps;
  long long stride, padding, dilation;  // padding: on the left; what lies beyond either end counts as zero
  long long input_strides[3], output_strides[3], history_strides[3];
  long long weight_strides[2];  // (channel, tap)
  long long bias_stride;
  Program pre, post;
  Operand<3> pre_operands[kMaxOperands], post_operands[kMaxOperands];
};

// Channels lie side by side in memory, so a thread takes a vector of channels; else a vector of positions.
enum class Conv1dLayout : int { channels_first, channels_last };

// What runs under `direct`.
enum class Conv1dForm : int {
  general,
  plain,     // channels_first: a thread's taps fit into registers; stride and dilation 1, no `pre`
  few_taps,  // at most four of them, and vectors are side by side in memory as well
};

struct Conv1dProblem {
  long long batch, channels, output_length;
  int multiplier, taps;
  long long stride, dilation;
  DType dtype;
  bool channels_last;
  bool aligned;        // every row of a channels-first output starts at a 16-byte word
  bool dense;          // a thread's vectors are side by side in memory, and channels-last ones aligned
  bool whole_words;    // channels_last: a position's channels begin at a word of the input
  bool pre, post;      // whether there are chains, before the convolution and behind it
  bool post_operands;  // tensors in the latter
};

struct Conv1dPlan : Plan {
  Conv1dLayout layout = Conv1dLayout::channels_first;
  Conv1dForm form = Conv1dForm::general;
  long long vectors = 0;  // channels_first: of one row
  int lanes = 0;          // few_taps: threads of a block side by side; the others are on other rows or positions
  int groups = 0;         // few_taps: vectors of a thread
  long long across = 1;   // channels_first: tiles of a row; channels_last: of the channels
  long long along = 1;    // channels_last: tiles of the positions
  int stage_words = 0;    // 16-byte words of input in one stage of the ring
  int weight_bytes = 0;   // of shared memory for taps: a block's (direct) or a stage's
  long long tiles = 0;    // that the blocks share out among them
};

Conv1dProblem problem_of(const Conv1dParams& params);

// `plan.threads` is 0 and `plan.reason` names the rule where the request cannot be met on `device`. `linked`: the chains will
// be part of the kernel; interpreted, tensors in a chain need the general form.
Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device, bool linked);

}  // namespace sluice
