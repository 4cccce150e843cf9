// The shapes of convolutions' results, and the rules for their arguments' shapes, which an op and its plan share.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/common/tensor_view.h"

namespace sluice {

using Sizes = std::span<const int64_t>;

inline Sizes shape_of(const TensorView& tensor) { return {tensor.sizes, static_cast<std::size_t>(tensor.rank)}; }

struct ConvolutionShapes {
  const char* name = "input";  // the op's for its input
  Sizes input;                 // (batch, channels, length)
  Sizes weight;                // (out_channels, channels / groups, taps)
  int64_t stride, padding, padding_right, dilation, groups;
};

// Returns (batch, channels, length) of the result. torch's rule: without input channels there are no output channels,
// whatever the weight's shape.
std::vector<int64_t> check_shapes(const char* op, const ConvolutionShapes& shapes,
                                  const std::optional<TensorView>& bias);

struct TransposedShapes {
  const char* name = "input";
  Sizes input;   // (batch, channels, length)
  Sizes weight;  // (channels, out_channels / groups, taps)
  int64_t stride, padding, padding_right, output_padding, groups, dilation;
};

// The same for a transposed convolution, which torch refuses without input channels.
std::vector<int64_t> check_transposed_shapes(const char* op, const TransposedShapes& shapes,
                                             const std::optional<TensorView>& bias);

}  // namespace sluice
