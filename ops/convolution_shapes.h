// The shape of a convolution's result, and the rules that its arguments' shapes keep to; conv1d and its plan ask the
// same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/common/tensor_view.h"

namespace sluice {

using Sizes = std::span<const int64_t>;

struct ConvolutionShapes {
  Sizes input;   // (batch, channels, length)
  Sizes weight;  // (out_channels, channels / groups, taps)
  int64_t stride, padding, padding_right, dilation, groups;
};

// Returns (batch, channels, length) of the result. Without input channels there are no output channels either, whatever
// the weight has: torch's rule.
std::vector<int64_t> check_shapes(const char* op, const ConvolutionShapes& shapes,
                                  const std::optional<TensorView>& bias);

}  // namespace sluice
