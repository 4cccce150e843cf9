// Results: allocated through torch, with the strides that the op promises.
#pragma once

#include "kernels/pipeline/plan.h"
#include "ops/common/checks.h"

namespace sluice {

// A tensor on `like`'s device. `op` names who asked where memory runs out.
Tensor allocate(const char* op, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype,
                const TensorView& like);

// The memory that a plan's kernels need beside inputs and output, for the current stream alone; nothing where that is
// none.
std::optional<Tensor> allocate_workspace(const char* op, const Plan& plan, const TensorView& like);

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

// The strides of a result of `sizes` that has the layout of `input`: channels-last where that is, else contiguous.
// The channels stand in front of the last `spatial` dimensions. Channels-last: more than one channel, side by side,
// and neighbours along the last dimension that has any at least a row of channels apart. Strides of dimensions of one
// element decide nothing: compilers change them at will.
std::vector<int64_t> layout_strides(const TensorView& input, const std::vector<int64_t>& sizes, int64_t spatial);

// The same elements with these strides, which differ from the tensor's in dimensions of one element at most.
Tensor restrided(const char* op, const Tensor& tensor, const std::vector<int64_t>& strides);

}  // namespace sluice
