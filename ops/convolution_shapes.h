// The shapes of the results of convolutions, and the rules that their arguments' shapes keep to; an op and its plan ask
// the same.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/common/tensor_view.h"

namespace sluice {

using Sizes = std::span<const int64_t>;

inline Sizes shape_of(const TensorView& tensor) { return {tensor.sizes, static_cast<std::size_t>(tensor.rank)}; }

struct ConvolutionShapes {
  Sizes input;   // (batch, channels, length)
  Sizes weight;  // (out_channels, channels / groups, taps)
  int64_t stride, padding, padding_right, dilation, groups;
};

// Returns (batch, channels, length) of the result. Without input channels there are no output channels either, whatever
// the weight has: torch's rule.
std::vector<int64_t> check_shapes(const char* op, const ConvolutionShapes& shapes,
                                  const std::optional<TensorView>& bias);

struct TransposedShapes {
  Sizes input;   // (batch, channels, length)
  Sizes weight;  // (channels, out_channels / groups, taps)
  int64_t stride, padding, output_padding, groups, dilation;
};

// The same of a transposed convolution, which torch refuses without input channels.
std::vector<int64_t> check_transposed_shapes(const char* op, const TransposedShapes& shapes,
                                             const std::optional<TensorView>& bias);

}  // namespace sluice
