// The place of a vector's elements in a tensor operand.
#pragma once

namespace sluice {

// Element i is at `offset + i * stride`, for first <= i < last; other elements' values are not used, and they may be
// outside the tensor. The tensor's first `extent` elements, from offset 0 on, may all be read, so that loads may be
// wider than a vector and include elements of other rows.
struct Place {
  long long offset;
  long long stride;
  int first;
  int last;
  long long extent;
};

}  // namespace sluice
