// What the kernels with windows in registers share: a ring of inputs whose indices are all known to the compiler, which
// is what keeps it in registers.
#pragma once

#include <utility>

#include "kernels/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// `body(turn)` with the turns 0 to Turns - 1 as types.
template <int Turns, class Body>
__device__ __forceinline__ void for_turns(Body&& body) {
  [&]<int... Each>(std::integer_sequence<int, Each...>) {
    (body(std::integral_constant<int, Each>{}), ...);
  }(std::make_integer_sequence<int, Turns>{});
}

}  // namespace sluice
