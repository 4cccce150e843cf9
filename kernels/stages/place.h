// Where the elements of a tensor operand lie that belong to one vector of a kernel.
#pragma once

namespace sluice {

// Element i lies at `offset + i * stride`, for first <= i < last; the values of the others do not matter, and they may
// lie outside of the tensor. Its first `extent` elements, from offset 0 on, may all be read, so that words may be wider
// than a vector and hold what is not this row's.
struct Place {
  long long offset;
  long long stride;
  int first;
  int last;
  long long extent;
};

}  // namespace sluice
