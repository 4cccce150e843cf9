#include "ops/convolution/shapes.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ops/common/checks.h"

namespace sluice {
namespace {

void check_positive(const char* op, const char* argument, int64_t value) {
  check(value > 0, op, ": ", argument, " must be at least 1, got ", value);
}

void check_not_negative(const char* op, const char* argument, int64_t value) {
  check(value >= 0, op, ": ", argument, " must not be negative, got ", value);
}

std::string whose(std::string_view name) { return name == "input" ? "the input's " : std::string(name) + "'s "; }

void check_input_rank(const char* op, const char* name, Sizes input) {
  check(input.size() == 3, op, ": ", name, " must have shape (batch, channels, length) or (channels, length), got ",
        ShapeText{input});
}

void check_bias(const char* op, const std::optional<TensorView>& bias, int64_t out_channels) {
  check(!bias.has_value() || bias->has_sizes({out_channels}), op, ": bias must have shape (", out_channels, ",), got ",
        bias.has_value() ? bias->shape() : ShapeText{});
}

// Far beyond any tensor, and small enough that no sum or product of two overflows.
constexpr int64_t kLimit = int64_t{1} << 31;

void check_limits(const char* op, int64_t stride, int64_t padding, int64_t dilation, int64_t taps) {
  check(std::max({stride, padding, dilation, taps}) < kLimit, op,
        ": stride, padding, dilation and taps must be less than 2^31, got ", stride, ", ", padding, ", ", dilation,
        ", ", taps);
}

}  // namespace

std::vector<int64_t> check_shapes(const char* op, const ConvolutionShapes& shapes,
                                  const std::optional<TensorView>& bias) {
  const auto& [name, input, weight, stride, padding, padding_right, dilation, groups] = shapes;
  check_input_rank(op, name, input);
  check(weight.size() == 3, op, ": weight must have shape (out_channels, in_channels / groups, taps), got ",
        ShapeText{weight});
  check_positive(op, "stride", stride);
  check_not_negative(op, "padding", padding);
  check_not_negative(op, "padding_right", padding_right);
  check_positive(op, "dilation", dilation);
  check_positive(op, "groups", groups);
  const int64_t channels = input[1], out_channels = weight[0], taps = weight[2];
  check(channels % groups == 0, op, ": groups must divide ", whose(name), channels, " channels, got ", groups);
  check(out_channels > 0, op, ": weight must have at least one output channel, got ", ShapeText{weight});
  check(out_channels % groups == 0, op, ": groups must divide the weight's ", out_channels, " output channels, got ",
        groups);
  check(weight[1] == channels / groups, op, ": weight must have shape (out_channels, ", channels / groups,
        ", taps) for ", channels, " channels in ", groups, " groups, got ", ShapeText{weight});
  check(taps > 0, op, ": weight must have at least one tap, got ", ShapeText{weight});
  check_bias(op, bias, out_channels);
  check_limits(op, stride, padding, dilation, taps);
  check(padding_right < kLimit, op, ": padding_right must be less than 2^31, got ", padding_right);
  const int64_t reach = dilation * (taps - 1) + 1, padded = input[2] + padding + padding_right;
  check(padded >= reach, op, ": ", name, " must have at least ", reach,
        " positions with padding, the kernel's reach, got ", padded);
  // torch's rule: inputs of length 0 are refused unless they have no rows.
  check(input[2] > 0 || input[0] * channels == 0, op, ": ", name, " must have at least one position, got ",
        ShapeText{input});
  return {input[0], channels == 0 ? 0 : out_channels, (padded - reach) / stride + 1};
}

std::vector<int64_t> check_transposed_shapes(const char* op, const TransposedShapes& shapes,
                                             const std::optional<TensorView>& bias) {
  const auto& [name, input, weight, stride, padding, padding_right, output_padding, groups, dilation] = shapes;
  check_input_rank(op, name, input);
  check(weight.size() == 3, op, ": weight must have shape (in_channels, out_channels / groups, taps), got ",
        ShapeText{weight});
  check_positive(op, "stride", stride);
  check_not_negative(op, "padding", padding);
  check_not_negative(op, "padding_right", padding_right);
  check_not_negative(op, "output_padding", output_padding);
  check_positive(op, "dilation", dilation);
  check_positive(op, "groups", groups);
  const int64_t channels = input[1], taps = weight[2];
  check(channels > 0, op, ": ", name, " must have at least one channel, got ", ShapeText{input});
  check(channels % groups == 0, op, ": groups must divide ", whose(name), channels, " channels, got ", groups);
  check(weight[0] == channels, op, ": weight must have shape (", channels, ", out_channels / groups, taps) for ",
        channels, " channels, got ", ShapeText{weight});
  check(weight[1] > 0, op, ": weight must have at least one output channel, got ", ShapeText{weight});
  check(taps > 0, op, ": weight must have at least one tap, got ", ShapeText{weight});
  const int64_t out_channels = weight[1] * groups;
  check_bias(op, bias, out_channels);
  check_limits(op, stride, std::max(padding, padding_right), dilation, taps);
  check(output_padding < std::max(stride, dilation), op, ": output_padding must be less than stride or dilation, got ",
        output_padding, " for a stride of ", stride, " and a dilation of ", dilation);
  check(input[2] > 0 || input[0] == 0, op, ": ", name, " must have at least one position, got ", ShapeText{input});
  constexpr int64_t kMostLength = int64_t{1} << 62;
  check(input[2] < kMostLength / stride, op, ": stride must spread the input over fewer than 2^62 positions, got ",
        stride, " for ", input[2]);
  const int64_t cropped = padding + padding_right;
  const int64_t length = (input[2] - 1) * stride - cropped + dilation * (taps - 1) + output_padding + 1;
  check(length >= 0, op, ": padding must leave a result of at least 0 positions, got ", padding, ", which leaves ",
        length);
  return {input[0], out_channels, length};
}

}  // namespace sluice
