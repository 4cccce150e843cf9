// Shared by the ops conv1d and conv_transpose1d: unbatched inputs, dtypes, chains, the out variant, and calls that
// prepare or plan.
#pragma once

#include "ops/convolution/convolution.h"

namespace sluice {

struct ConvolutionCall {
  Convolution convolution;
  bool is_batched;  // else the caller's input and result are (channel, position)
};

// The arguments after the numbers in a schema.
struct ConvolutionOptions {
  const std::string& pre;
  const OptionalTensors& pre_operands;
  const std::string& post;
  const OptionalTensors& post_operands;
  const std::optional<ScalarType>& dtype;
  const std::string& schedule;
  const std::optional<int64_t>& depth;
  const std::string& precision;
};

// (C, L) as (1, C, L).
Tensor batched(const Tensor& tensor);

// Refuses a weight, or a bias, of another dtype or device than the input.
void check_like_input(const char* op, const char* argument, const TensorView& tensor, const TensorView& input);

// Adds the options to a convolution whose tensors, numbers and `sizes` are checked.
void set_options(Convolution& convolution, const ConvolutionOptions& options);

// The entries of a raw op (ops/common/raw_op.h).
Tensor convolve_call(const ConvolutionCall& call);
void convolve_call_out(const ConvolutionCall& call, const Tensor& out);
std::string answer_call(const ConvolutionCall& call, const std::optional<Tensor>& out, const CallMode& mode);

}  // namespace sluice
