// Results: allocated through torch, with the op's documented strides.
#pragma once

#include "ops/common/checks.h"

namespace sluice {

// A tensor on `like`'s device. `op` names the op in out-of-memory errors.
Tensor allocate(const char* op, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype,
                const TensorView& like);

// The device memory that kernels need in addition to inputs and output, for the current stream only; nothing for no
// bytes.
std::optional<Tensor> allocate_workspace(const char* op, int64_t bytes, const TensorView& like);

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

// The strides of a result of `sizes` in the layout of `input`: channels-last if the input is, else contiguous. Channels
// are the dimension before the last `spatial` dimensions. Channels-last: more than one channel, contiguous, and
// elements adjacent along the last dimension that has any are at least a row of channels apart. Strides of dimensions
// of one element are ignored: compilers change them at will.
std::vector<int64_t> layout_strides(const TensorView& input, const std::vector<int64_t>& sizes, int64_t spatial);

// The same elements with these strides, which may only differ in dimensions of one element.
Tensor restrided(const char* op, const Tensor& tensor, const std::vector<int64_t>& strides);

}  // namespace sluice
