// Weights in the order of the tensor-core kernels: tensors of shape
// (chunks of input channels, taps, output channels, input channels of a chunk).
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice {

// Refuses a `packed` that cannot be `weight`'s, (output channels, input channels, taps), or not for this input.
void check_packed(const char* op, const TensorView& packed, const TensorView& weight, const TensorView& input);

}  // namespace sluice
