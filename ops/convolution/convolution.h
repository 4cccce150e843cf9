// A convolution with its chains, which conv1d, conv_transpose1d and causal_conv1d make of their arguments, and its
// execution by sluice's kernels, or by aten's with a pass for each chain.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/shared/pipeline/schedule.h"
#include "ops/common/call_mode.h"
#include "ops/common/chain.h"

namespace sluice {

// A convolution, every argument checked. Inputs are (batch, channel, position).
struct Convolution {
  const char* op;
  Tensor input, weight;
  std::optional<Tensor> packed = std::nullopt;  // the weight, packed as in kernels/operators/conv1d/dense/pack.h
  std::optional<Tensor> bias = std::nullopt;
  std::optional<Tensor> history = std::nullopt;  // (batch, channel, padding): inputs before the first position
  int64_t stride = 1, padding = 0, padding_right = 0, dilation = 1, groups = 1;
  // The weight is (input channel, output channel of its group, tap); stride, padding and dilation are as
  // F.conv_transpose1d's, except that `padding_right` positions are cropped on the right.
  bool is_transposed = false;
  int64_t output_padding = 0;  // a transposed convolution's
  Chain pre = {}, post = {};
  bool in_passes = false;        // its chains run as passes, and the sums have the bits of a kernel with linked chains
  bool unsplit = false;          // no split-K
  bool keeps_sums = false;       // torch's kernels too give float32 sums of half types, unrounded
  bool allows_tf32 = false;      // dense kernels may round float32 factors to TF32
  DType dtype = DType::float32;  // the result's
  ScheduleRequest schedule = {};
  std::vector<int64_t> sizes = {}, strides = {};  // the result's

  bool has_chains() const { return !pre.empty() || !post.empty(); }
};

// Whether each output channel has one input channel, and the depthwise method takes it.
bool is_depthwise(const Convolution& convolution);

// A depthwise kernel's params, with the result in `result`.
Conv1dParams depthwise_params(const Convolution& convolution, const TensorView& result);

// Refuses an `out` that overlaps tensors that are read while it is written. `input` is the op's name for its input.
void check_out_overlap(const Convolution& convolution, const char* input, const TensorView& out);

// The result, newly allocated with `strides`, or aten's own tensor where that has this layout.
Tensor convolve(const Convolution& convolution);

// Writes the result into `output`, which is (batch, channel, position) with any strides.
void run_convolution(const Convolution& convolution, const Tensor& output);

// Links what the convolution would run (into `out`, unless that is null) and returns why its chains are not linked,
// empty where they are; or returns its plan as text.
std::string prepare_or_plan_convolution(const Convolution& convolution, const TensorView* out, const CallMode& mode);

}  // namespace sluice
