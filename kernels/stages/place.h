// Where the elements of a tensor operand lie that belong to one vector of a kernel.
#pragma once

namespace sluice {

// Element i lies at `offset + i * stride`, for first <= i < last; the others are not in memory and their values do
// not matter. With a stride of 1 everything from `low` to before `high` may be read, so that words may be wider.
struct Place {
  long long offset;
  long long stride;
  int first;
  int last;
  long long low;
  long long high;
};

}  // namespace sluice
