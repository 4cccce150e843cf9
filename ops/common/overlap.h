// Whether tensors share memory, by their elements and not by the memory between: one column of a matrix shares none
// with the next column.
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice {

// Whether two tensors have a byte in common.
bool overlap(const TensorView& a, const TensorView& b);

// Whether two elements of one tensor share memory.
bool overlaps_itself(const TensorView& tensor);

}  // namespace sluice
