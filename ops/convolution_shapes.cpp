#include "ops/convolution_shapes.h"

#include "ops/common/checks.h"

namespace sluice {
namespace {

void check_positive(const char* op, const char* argument, int64_t value) {
  check(value > 0, op, ": ", argument, " must be at least 1, got ", value);
}

}  // namespace

std::vector<int64_t> check_shapes(const char* op, const ConvolutionShapes& shapes,
                                  const std::optional<TensorView>& bias) {
  const auto& [input, weight, stride, padding, padding_right, dilation, groups] = shapes;
  check(input.size() == 3, op, ": input must have shape (batch, channels, length) or (channels, length), got ",
        ShapeText{input});
  check(weight.size() == 3, op, ": weight must have shape (out_channels, in_channels / groups, taps), got ",
        ShapeText{weight});
  check_positive(op, "stride", stride);
  check(padding >= 0, op, ": padding must not be negative, got ", padding);
  check(padding_right >= 0, op, ": padding_right must not be negative, got ", padding_right);
  check_positive(op, "dilation", dilation);
  check_positive(op, "groups", groups);
  const int64_t channels = input[1], out_channels = weight[0], taps = weight[2];
  check(channels % groups == 0, op, ": groups must divide the input's ", channels, " channels, got ", groups);
  check(out_channels > 0, op, ": weight must have at least one output channel, got ", ShapeText{weight});
  check(out_channels % groups == 0, op, ": groups must divide the weight's ", out_channels, " output channels, got ",
        groups);
  check(weight[1] == channels / groups, op, ": weight must have shape (out_channels, ", channels / groups,
        ", taps) for ", channels, " channels in ", groups, " groups, got ", ShapeText{weight});
  check(taps > 0, op, ": weight must have at least one tap, got ", ShapeText{weight});
  check(!bias.has_value() || bias->has_sizes({out_channels}), op, ": bias must have shape (", out_channels, ",), got ",
        bias.has_value() ? bias->shape() : ShapeText{});
  // Far beyond any tensor, and small enough that no sum or product below overflows.
  constexpr int64_t kLimit = int64_t{1} << 31;
  check(stride < kLimit && padding < kLimit && padding_right < kLimit && dilation < kLimit && taps < kLimit, op,
        ": stride, padding, dilation and taps must be less than 2^31, got ", stride, ", ", padding, ", ", dilation,
        ", ", taps);
  const int64_t reach = dilation * (taps - 1) + 1, padded = input[2] + padding + padding_right;
  check(padded >= reach, op, ": input must be at least as long as the kernel's reach of ", reach,
        " with its padding, got ", padded);
  // As torch has it: rows of zeros alone are a result only where there are none.
  check(input[2] > 0 || input[0] * channels == 0, op, ": input must have at least one position, got ",
        ShapeText{input});
  return {input[0], channels == 0 ? 0 : out_channels, (padded - reach) / stride + 1};
}

}  // namespace sluice
