// Weights packed for the tensor-core kernels: tensors of shape
// (k-blocks of input channels, taps, output channels, input channels of a k-block); of float32 without TF32, twice the
// taps: each tap's high parts, then its low parts.
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice {

// Refuses a `packed` that does not match `weight`, (output channels, input channels, taps), or the input. Returns
// whether it is packed for the call's precision.
bool check_packed(const char* op, const TensorView& packed, const TensorView& weight, const TensorView& input,
                  bool allows_tf32);

}  // namespace sluice
