// A convolution with its chains, as conv1d, conv_transpose1d and causal_conv1d make one of their arguments, and its
// run: by sluice's own kernels or by aten's with a pass of each chain around them.
#pragma once

#include "kernels/conv1d/conv1d.h"
#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"
#include "ops/common/question.h"

namespace sluice {

// A convolution, every argument checked. Inputs are (batch, channel, position).
struct Convolution {
  const char* op;
  Tensor input, weight;
  std::optional<Tensor> packed = std::nullopt;  // the weight, in an order of kernels/conv1d/dense/pack.h
  std::optional<Tensor> bias = std::nullopt;
  std::optional<Tensor> history = std::nullopt;  // (batch, channel, padding): what stands before the first position
  int64_t stride = 1, padding = 0, padding_right = 0, dilation = 1, groups = 1;
  // The weight is (input channel, output channel of its group, tap), and the numbers are a transposed convolution's.
  bool is_transposed = false;
  int64_t output_padding = 0;  // of a transposed one
  Chain pre = {}, post = {};
  bool in_one_part = false;  // sums are not made in parts: they are to have the bits of a kernel with chains of its own
  DType dtype = DType::float32;  // of the result
  ScheduleRequest schedule = {};
  std::vector<int64_t> sizes = {}, strides = {};  // of the result
};

// Whether each output channel has one input channel and kernels of its own for that.
bool is_depthwise(const Convolution& convolution);

// A depthwise convolution as a kernel takes it, its result in `result`.
Conv1dParams depthwise_params(const Convolution& convolution, const TensorView& result);

// Refuses an `out` that shares memory with what is read while it is written. `input` is what the op calls its input.
void check_out_overlap(const Convolution& convolution, const char* input, const TensorView& out);

// The result, newly allocated with `strides`; where aten made it in that layout, aten's own tensor.
Tensor convolve(const Convolution& convolution);

// Writes the result into `output`, which is (batch, channel, position) with any strides.
void run_convolution(const Convolution& convolution, const Tensor& output);

// Links what the convolution would run, into `out` where that is not null, and returns why its chains are not linked,
// empty where they are; or returns its plan as text.
std::string ask_convolution(const Convolution& convolution, const TensorView* out, const Question& question);

}  // namespace sluice
