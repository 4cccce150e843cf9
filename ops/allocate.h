// Results: allocated through torch, with the strides that the op promises.
#pragma once

#include "ops/checks.h"

namespace sluice {

// A tensor on `like`'s device. `op` names who asked where memory runs out.
Tensor allocate(const char* op, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype,
                const TensorView& like);

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

}  // namespace sluice
