// Weights packed for the tensor-core kernels: tensors of shape
// (k-blocks of input channels, taps, output channels, input channels of a k-block).
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice {

// Refuses a `packed` that does not match `weight`, (output channels, input channels, taps), or the input.
void check_packed(const char* op, const TensorView& packed, const TensorView& weight, const TensorView& input);

}  // namespace sluice
