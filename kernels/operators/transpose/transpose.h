// Transposes rows of contiguous columns into columns of contiguous rows, for kernels that take or give the other
// layout.
#pragma once

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"

namespace sluice {

struct TransposeParams {
  // (batch, row, column) of one dtype. In `from` columns are contiguous; in `to` rows are, if it is to be fast.
  Operand<3> from, to;
  long long batch, rows, columns;

  // Elements from one contiguous run of `length` to the next in a workspace: whole words of any dtype.
  static constexpr long long pitch(long long length) { return round_up<long long>(length, 8); }
};

// The same elements as (batch, column, row).
constexpr Operand<3> swapped(const Operand<3>& operand) {
  return {.data = operand.data,
          .dtype = operand.dtype,
          .strides = {operand.strides[0], operand.strides[2], operand.strides[1]}};
}

}  // namespace sluice
