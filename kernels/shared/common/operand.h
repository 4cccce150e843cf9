// A tensor as a kernel takes it: pointer, dtype and strides in one argument.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/qualifiers.h"

namespace sluice {

// Strides in elements; 0 along a broadcast dimension. `data` is null for an absent optional tensor.
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
