#include "ops/convolution/aten.h"

#include <algorithm>

#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

// Strides of the result of the pass of `pre`.
std::vector<int64_t> strides_like_input(const Convolution& c) {
  const TensorView input(c.input);
  return layout_strides(input, sizes_of(input), /*spatial=*/1);
}

// Whether to pass the input as a row of a channels-last image, which cuDNN and oneDNN read directly: torch copies
// (B, C, L) to channels-first before (H200, float16: 1.2 to 2.3 times as long, TF32 1.0 to 10 times, full float32 0.9
// to 2.2 times; on a CPU, transposed, one core: 1.4 to 13 times).
bool is_row_of_image(const Convolution& c, const TensorView& input) {
  const bool suits_gpu = input.dtype != DType::float64;
  if (input.is_cpu() ? !c.is_transposed : !suits_gpu) return false;
  return input.strides[1] == 1 && input.sizes[1] > 1 && input.strides[2] >= input.sizes[1];
}

// The dtype that aten computes in. float16 on the CPU goes through float32, for which aten's kernels are ten times
// faster (torch 2.13, one core: 112 ms against 1.3 s for 4 x 64 x 4096 with 7 taps).
DType dtype_of_sums(const Convolution& c) {
  const TensorView input(c.input);
  if (c.keeps_sums) return c.dtype;
  if (input.is_cpu()) return input.dtype == DType::float16 ? DType::float32 : input.dtype;
  // Depthwise sums must not use TF32, as aten may. Transposed convolutions of half types sum in float32 anyway.
  const bool may_be_tf32 = is_depthwise(c) && !(c.is_transposed && size_of(input.dtype) == 2);
  return may_be_tf32 ? DType::float64 : input.dtype;
}

// The input after a pass of `pre`, rounded to the input's dtype as inside a kernel.
Tensor input_after_pre(const Convolution& c) {
  const TensorView source(c.input);
  if (c.pre.empty() || source.elements() == 0) return c.input;
  const Tensor input = allocate(c.op, sizes_of(source), strides_like_input(c), source.dtype, source);
  run_transform(c.op, source, TensorView(input), c.pre, ScheduleRequest{});
  return input;
}

Tensor convolve(const Convolution& c, const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                const aten::ConvolutionNumbers& numbers) {
  if (!is_row_of_image(c, TensorView(input))) return aten::convolution(input, weight, bias, numbers);
  const Tensor row = aten::convolution_of_row(aten::unsqueeze(input, 2), aten::unsqueeze(weight, 2), bias, numbers);
  return aten::squeeze(row, 2);
}

}  // namespace

ChainAfterAten::ChainAfterAten(const Convolution& c) : convolution_(c) {
  if (!c.bias.has_value() || c.post.empty() || TensorView(c.input).is_cpu()) return;
  Chain chain = c.post;
  if (chain.prepend_addition(bias_.emplace(*c.bias).view())) with_bias_ = std::move(chain);
}

Tensor convolve_with_aten(const Convolution& c, const ChainAfterAten& after) {
  const DType dtype = dtype_of_sums(c);
  aten::ConvolutionNumbers numbers{.stride = c.stride,
                                   .padding = c.padding,
                                   .dilation = c.dilation,
                                   .groups = c.groups,
                                   .is_transposed = c.is_transposed,
                                   .output_padding = c.output_padding};
  Tensor input = aten::to_dtype(input_after_pre(c), dtype);
  if (c.history.has_value()) {
    input = aten::concatenate_last(aten::to_dtype(*c.history, dtype), input);
    numbers.padding = 0;
  } else if (!c.is_transposed && c.padding != c.padding_right) {
    input = aten::pad_last(input, c.padding, c.padding_right);
    numbers.padding = 0;
  }
  Tensor weight = aten::to_dtype(c.weight, dtype);
  if (weight.dim() == 2) weight = aten::unsqueeze(weight, 1);
  const std::optional<Tensor> bias = after.adds_bias() ? std::nullopt : aten::to_dtype(c.bias, dtype);
  if (c.is_transposed) numbers.padding = std::min(c.padding, c.padding_right);
  const Tensor result = convolve(c, input, weight, bias, numbers);
  if (!c.is_transposed || c.padding == c.padding_right) return result;
  return aten::narrow_last(result, c.padding - numbers.padding, c.sizes[2]);
}

std::string prepare_passes(const Convolution& c, const TensorView& result, const CallMode& mode) {
  std::string reason;
  if (!c.pre.empty()) {
    const TensorView input(c.input);
    const std::vector<int64_t> sizes = sizes_of(input), strides = strides_like_input(c);
    reason = run_transform(c.op, input, TensorView(input, sizes, strides, input.dtype), c.pre, ScheduleRequest{}, mode);
  }
  if (c.post.empty()) return c.pre.empty() ? kNoChain : reason;
  const ChainAfterAten after(c);
  const std::string of_post = run_transform(c.op, result, result, after.chain(), ScheduleRequest{}, mode);
  return reason.empty() ? of_post : reason;
}

}  // namespace sluice
