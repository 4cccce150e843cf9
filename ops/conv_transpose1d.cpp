// conv_transpose1d: arguments to a transposed Convolution, its shapes and dtypes checked.
#include <utility>

#include "ops/common/checks.h"
#include "ops/common/raw_op.h"
#include "ops/convolution/call.h"
#include "ops/convolution/shapes.h"
#include "ops/ops.h"
#include "ops/pack.h"

namespace sluice {
namespace {

constexpr char kOp[] = "conv_transpose1d";

ConvolutionCall check_arguments(const Tensor& given, const Tensor& weight, const std::optional<Tensor>& bias,
                                int64_t stride, int64_t padding, int64_t output_padding, int64_t groups,
                                int64_t dilation, const std::string& pre, const OptionalTensors& pre_operands,
                                const std::string& post, const OptionalTensors& post_operands,
                                const std::optional<ScalarType>& dtype, const std::string& schedule,
                                const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right,
                                const std::optional<Tensor>& packed, const std::string& precision) {
  const Tensor input = batched(given);
  const TensorView view(input), kernel(weight);
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  const int64_t right = padding_right.value_or(padding);
  check_floating(kOp, "input", view);
  const TransposedShapes shapes{.input = shape_of(view),
                                .weight = shape_of(kernel),
                                .stride = stride,
                                .padding = padding,
                                .padding_right = right,
                                .output_padding = output_padding,
                                .groups = groups,
                                .dilation = dilation};
  Convolution c{.op = kOp,
                .input = input,
                .weight = weight,
                .packed = packed,
                .bias = bias,
                .stride = stride,
                .padding = padding,
                .padding_right = right,
                .dilation = dilation,
                .groups = groups,
                .is_transposed = true,
                .output_padding = output_padding,
                .sizes = check_transposed_shapes(kOp, shapes, offset)};
  check_like_input(kOp, "weight", kernel, view);
  if (offset.has_value()) check_like_input(kOp, "bias", *offset, view);
  set_options(c, {pre, pre_operands, post, post_operands, dtype, schedule, depth, precision});
  const auto is_taken = [&](const Tensor& form) {
    return check_packed_transposed(kOp, TensorView(form), kernel, view, stride, dilation, c.allows_tf32);
  };
  if (packed.has_value() && !is_taken(*packed)) c.packed = std::nullopt;  // the call reads the weight
  return {.convolution = std::move(c), .is_batched = given.dim() != 2};
}

constexpr char kArguments[] =
    "Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int padding=0, int output_padding=0, "
    "int groups=1, int dilation=1, *, str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", "
    "Tensor[]? post_operands=None, ScalarType? dtype=None, str schedule=\"auto\", int? depth=None, "
    "int? padding_right=None, Tensor? packed=None, str precision=\"ieee\"";

}  // namespace

const Registration kConvTranspose1d =
    Entries<kOp, kArguments, check_arguments, convolve_call, convolve_call_out, answer_call>::kRegistration;

}  // namespace sluice
