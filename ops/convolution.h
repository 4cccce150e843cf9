// What causal_conv1d uses of conv1d: the checked arguments and the run.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"

namespace sluice {

// A convolution, every argument checked. Inputs are (batch, channel, position).
struct Convolution {
  const char* op;
  Tensor input, weight;
  std::optional<Tensor> bias, history;
  int64_t stride, padding, padding_right, dilation, groups;
  Chain pre, post;
  DType dtype;  // of the result
  ScheduleRequest schedule;
  std::vector<int64_t> sizes, strides;  // of the result
};

// The result, newly allocated with `strides`; where aten made it in that layout, aten's own tensor.
Tensor convolve(const Convolution& convolution);

// Links what the convolution would run; returns why its chains are not linked, empty where they are.
std::string prepare_convolution(const Convolution& convolution);

// Writes the result into `output`, which is (batch, channel, position) with any strides.
void run_convolution(const Convolution& convolution, const Tensor& output);

}  // namespace sluice
