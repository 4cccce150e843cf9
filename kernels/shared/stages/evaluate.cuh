// A stage on several values in registers.
#pragma once

#include "kernels/shared/stages/functors.h"

namespace sluice {

// Values whose far angles are tested at once.
inline constexpr int kFarGroup = 8;

// Whether any of the angles needs the far reduction (reductions.h).
template <int Count, class ParametersOf>
__device__ __forceinline__ bool has_far_angle(const float* values, const ParametersOf& parameters_of) {
  float largest[4] = {};
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    largest[i % 4] = fmaxf(largest[i % 4], magnitude(parameters_of(i).value[0] * values[i]));
  }
  return fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3])) > kMostNear;
}

// The i-th value with `parameters_of(i)`. Snake's far angles are tested once for all values: a branch for each would
// keep the compiler from interleaving them.
template <int Count, Op op, Precision precision, class T, class ParametersOf>
__device__ __forceinline__ void evaluate_all(Evaluate<op, precision> evaluate, T* values,
                                             const ParametersOf& parameters_of) {
  if constexpr (op == Op::snake && sizeof(T) == sizeof(float) && Count > kFarGroup) {
#pragma unroll
    for (int g = 0; g < Count; g += kFarGroup) {
      evaluate_all<kFarGroup>(evaluate, values + g, [&](int i) { return parameters_of(g + i); });
    }
  } else if constexpr (op == Op::snake && sizeof(T) == sizeof(float)) {
    if (!has_far_angle<Count>(values, parameters_of)) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const Parameters<T> p = parameters_of(i);
        values[i] = Functions<T, precision>::snake_of_near(values[i], p.value[0], p.value[1] + p.value[2]);
      }
      return;
    }
    // The code once, and without value[k], which would put them all into memory.
#pragma unroll 1
    for (int k = 0; k < Count; ++k) {
      T value{};
      Parameters<T> p{};
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        if (i == k) value = values[i], p = parameters_of(i);
      }
      value = evaluate(value, p);
#pragma unroll
      for (int i = 0; i < Count; ++i) values[i] = i == k ? value : values[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] = evaluate(values[i], parameters_of(i));
  }
}

}  // namespace sluice
