// Shared by the kernels with windows in registers: a ring of inputs whose indices are compile-time constants, which
// keeps it in registers.
#pragma once

#include <utility>

#include "kernels/operators/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// Calls `body(step)` with the steps 0 to Steps - 1 as types.
template <int Steps, class Body>
__device__ __forceinline__ void for_unrolled(Body&& body) {
  [&]<int... Each>(std::integer_sequence<int, Each...>) {
    (body(std::integral_constant<int, Each>{}), ...);
  }(std::make_integer_sequence<int, Steps>{});
}

}  // namespace sluice
