// conv_transpose1d: arguments to a transposed Convolution, its shapes and dtypes checked.
#include <utility>

#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/raw_op.h"
#include "ops/common/streamed_op.h"
#include "ops/convolution/call.h"
#include "ops/convolution/shapes.h"

namespace sluice {
namespace {

constexpr const char* kOp = "conv_transpose1d";

ConvolutionCall check_arguments(const Tensor& given, const Tensor& weight, const std::optional<Tensor>& bias,
                                int64_t stride, int64_t padding, int64_t output_padding, int64_t groups,
                                int64_t dilation, const std::string& pre, const OptionalTensors& pre_operands,
                                const std::string& post, const OptionalTensors& post_operands,
                                const std::optional<ScalarType>& dtype, const std::string& schedule,
                                const std::optional<int64_t>& depth) {
  const Tensor input = batched(given);
  const TensorView view(input), kernel(weight);
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  check_floating(kOp, "input", view);
  const TransposedShapes shapes{.input = shape_of(view),
                                .weight = shape_of(kernel),
                                .stride = stride,
                                .padding = padding,
                                .output_padding = output_padding,
                                .groups = groups,
                                .dilation = dilation};
  Convolution c{.op = kOp,
                .input = input,
                .weight = weight,
                .bias = bias,
                .stride = stride,
                .padding = padding,
                .dilation = dilation,
                .groups = groups,
                .is_transposed = true,
                .output_padding = output_padding,
                .sizes = check_transposed_shapes(kOp, shapes, offset)};
  check_like_input(kOp, "weight", kernel, view);
  if (offset.has_value()) check_like_input(kOp, "bias", *offset, view);
  set_options(c, {pre, pre_operands, post, post_operands, dtype, schedule, depth});
  return {.convolution = std::move(c), .is_batched = given.dim() != 2};
}

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("conv_transpose1d", TORCH_BOX((raw_op<check_arguments, convolve_call>)));
  m.impl("conv_transpose1d_out", TORCH_BOX((raw_op<check_arguments, convolve_call_out>)));
  m.impl("_prepare_conv_transpose1d", TORCH_BOX((raw_op<check_arguments, prepare_call>)));
  m.impl("_stream_conv_transpose1d", TORCH_BOX((streamed_op<check_arguments, convolve_call_out>)));
}

#ifndef SLUICE_CUDA_LIBRARY
#define SLUICE_CONV_TRANSPOSE1D_ARGUMENTS                                                               \
  "Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int padding=0, int output_padding=0, " \
  "int groups=1, int dilation=1, *, str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", "         \
  "Tensor[]? post_operands=None, ScalarType? dtype=None, str schedule=\"auto\", int? depth=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("conv_transpose1d(" SLUICE_CONV_TRANSPOSE1D_ARGUMENTS ") -> Tensor");
  m.def("conv_transpose1d_out(" SLUICE_CONV_TRANSPOSE1D_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("_prepare_conv_transpose1d(" SLUICE_CONV_TRANSPOSE1D_ARGUMENTS ", Tensor? out=None) -> str");
  m.def("_stream_conv_transpose1d(" SLUICE_CONV_TRANSPOSE1D_ARGUMENTS SLUICE_STREAMED_ARGUMENTS);
  m.def("_plan_conv_transpose1d(" SLUICE_CONV_TRANSPOSE1D_ARGUMENTS
        ", Tensor? out=None, bool linked, int[] device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_plan_conv_transpose1d", TORCH_BOX((raw_op<check_arguments, plan_call>)));
}
#endif

}  // namespace sluice
