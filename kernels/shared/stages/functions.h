// The stage functions by compute type and, in float, by the precision that the chain's result needs.
#pragma once

#include "kernels/shared/stages/functions_half.h"
#include "kernels/shared/stages/functions_single.h"
#include "kernels/shared/stages/stage_list.h"

namespace sluice {

// float64: libm's.
struct DoubleFunctions {
  SLUICE_HOST_DEVICE static double exp(double x) { return ::exp(x); }
  SLUICE_HOST_DEVICE static double log(double x) { return ::log(x); }
  SLUICE_HOST_DEVICE static double sqrt(double x) { return ::sqrt(x); }
  SLUICE_HOST_DEVICE static double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
  SLUICE_HOST_DEVICE static double silu(double x) { return x * sigmoid(x); }
  SLUICE_HOST_DEVICE static double gelu(double x) { return 0.5 * x * (1.0 + ::erf(x * 0.70710678118654752440)); }
  SLUICE_HOST_DEVICE static double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + ::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  }
  SLUICE_HOST_DEVICE static double tanh(double x) { return ::tanh(x); }
  SLUICE_HOST_DEVICE static double expm1_of_negative(double x) { return ::expm1(x); }
  SLUICE_HOST_DEVICE static double softplus(double x, double beta) { return ::log1p(::exp(x)) / beta; }
  SLUICE_HOST_DEVICE static double snake(double x, double alpha, double beta) {
    const double sine = ::sin(alpha * x);
    return x + sine * sine / beta;
  }
};

template <class T, Precision precision>
struct FunctionsOf {
  using type = SingleFunctions;
};
template <>
struct FunctionsOf<float, Precision::half> {
  using type = HalfFunctions;
};
template <Precision precision>
struct FunctionsOf<double, precision> {
  using type = DoubleFunctions;
};
template <class T, Precision precision>
using Functions = typename FunctionsOf<T, precision>::type;

SLUICE_HOST_DEVICE float reciprocal_sqrt(float value) {
#ifdef __CUDA_ARCH__
  return rsqrtf(value);
#else
  return 1.0f / std::sqrt(value);
#endif
}
SLUICE_HOST_DEVICE double reciprocal_sqrt(double value) {
#ifdef __CUDA_ARCH__
  return ::rsqrt(value);
#else
  return 1.0 / std::sqrt(value);
#endif
}

}  // namespace sluice
