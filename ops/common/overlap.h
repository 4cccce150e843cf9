// Whether tensors share memory, by what their elements reach and not by what lies between: one column of a
// matrix shares none with the column beside it.
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice {

// Whether two tensors have a byte in common.
bool overlap(const TensorView& a, const TensorView& b);

// Whether two elements of one tensor lie in the same place.
bool overlaps_itself(const TensorView& tensor);

}  // namespace sluice
