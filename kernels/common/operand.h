// A tensor as a kernel takes it: one argument, and not a pointer here, a dtype there and strides at a third place.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/common/qualifiers.h"

namespace sluice {

// Strides in elements; 0 along a dimension that repeats. `data` is null where the tensor may be absent, and is.
template <int Rank>
struct Operand {
  void* data;
  DType dtype;
  long long strides[Rank];

  SLUICE_HOST_DEVICE bool exists() const { return data != nullptr; }
  template <class Element>
  SLUICE_HOST_DEVICE Element* as() const {
    return static_cast<Element*>(data);
  }
};

}  // namespace sluice
