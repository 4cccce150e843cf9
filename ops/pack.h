// Weights packed for the tensor-core kernels: tensors of shape
// (k-blocks of input channels, taps, output channels, input channels of a k-block); of float32 without TF32, twice the
// taps: each tap's high parts, then its low parts.
//
// Transposed convolutions have two packed forms, each of a rearranged weight:
//
//   rank 4   of stride 1, or of results interleaved by positions; rows are output channels, each with its components
//   rank 1   of results interleaved by channels; one component range after the other, as flat tensors; rows are
//            components, each with its output channels, rounded up to kSwizzleRows
#pragma once

#include <array>

#include "kernels/operators/conv1d/conv1d.h"
#include "ops/common/tensor_view.h"

namespace sluice {

// Refuses a `packed` that does not match `weight`, (output channels, input channels, taps), or the input. Returns
// whether it is packed for the call's precision.
bool check_packed(const char* op, const TensorView& packed, const TensorView& weight, const TensorView& input,
                  bool allows_tf32);

// The same for a transposed convolution's weight, (input channels, output channels, taps). Either form is taken, also
// where the call's launches need the other.
bool check_packed_transposed(const char* op, const TensorView& packed, const TensorView& weight,
                             const TensorView& input, int64_t stride, int64_t dilation, bool allows_tf32);

// The orders of a transposed convolution's form of rank 1: of its ranges by taps. Empty ranges have no elements.
std::array<PackedOrder, 2> packed_ranges(const Conv1dTensors& whole, int64_t input_channels, DType dtype,
                                         bool allows_tf32);

}  // namespace sluice
