// Small integer helpers, for the host and the device.
#pragma once

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

template <class Int>
SLUICE_HOST_DEVICE constexpr Int ceil_div(Int value, Int divisor) {
  return (value + divisor - 1) / divisor;
}

template <class Int>
SLUICE_HOST_DEVICE constexpr Int round_up(Int value, Int multiple) {
  return ceil_div(value, multiple) * multiple;
}

template <class Int>
SLUICE_HOST_DEVICE constexpr Int min_of(Int a, Int b) {
  return a < b ? a : b;
}

template <class Int>
SLUICE_HOST_DEVICE constexpr Int max_of(Int a, Int b) {
  return a < b ? b : a;
}

}  // namespace sluice
