// The shapes of a convolution, checked; conv1d and its plan ask the same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/common/tensor_view.h"

namespace sluice {

using Sizes = std::span<const int64_t>;

// Shapes and numbers, in torch's order; returns the result's length. `input` is (batch, channels, length), `weight`
// (out_channels, channels / groups, taps).
int64_t check_conv1d_shapes(const char* op, Sizes input, Sizes weight, const std::optional<TensorView>& bias, int64_t stride,
                            int64_t padding, int64_t padding_right, int64_t dilation, int64_t groups);

// (batch, channels, length) of the result. Without input channels there are no output channels either, whatever the
// weight has: torch's rule.
std::vector<int64_t> conv1d_result_sizes(Sizes input, Sizes weight, int64_t length);

}  // namespace sluice
