// The stage functions for chains from a half type into a half type: relative errors of at most 2^-16, before the end of
// the chain rounds to 8 or 11 bits. The budget is the memory's: on an H200 two bytes each way leave an element 33 issue
// slots and 4.2 MUFU instructions, loads and conversions included.
//
// ex2.approx.ftz and rcp.approx.ftz flush subnormals and overflow early, where bfloat16 still has numbers: hence 2^(x /
// 2) squared, and a factor of 2^-16 on both terms of 1 + e^-x.
#pragma once

#include "kernels/shared/stages/polynomials.h"
#include "kernels/shared/stages/reductions.h"

namespace sluice {

// F: float, or a vector of floats if the target has vector versions of the function's operations.
struct HalfFunctions {
  static constexpr float kLog2E = 1.4426950408889634f;

  template <class F>
  SLUICE_HOST_DEVICE static F exp(F x) {
    const F root = exp2_approximately(x * (0.5f * kLog2E));
    return root * root;
  }

  SLUICE_HOST_DEVICE static float log(float x) {
    const Mantissa m = mantissa_of(x);
    const float f = m.value - 1.0f;
    const float result = fused(m.exponent, 0.69314718f, fused(f * f, log_tail_short(f), f));
    return log_of_special(x, result);
  }

  SLUICE_HOST_DEVICE static float sqrt(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return std::sqrt(x);
#endif
  }

  // 2^16 / (1 + 2^(t + 16)), which does not overflow before the result is below bfloat16's smallest number.
  template <class F>
  SLUICE_HOST_DEVICE static F scaled_logistic(F t) {
    return reciprocal_approximately(exp2_approximately(t) + kScale);
  }
  static constexpr float kScale = 1.0f / 65536;

  template <class F>
  SLUICE_HOST_DEVICE static F sigmoid(F x) {
    return scaled_logistic(fused(x, -kLog2E, -16.0f)) * kScale;
  }

  template <class F>
  SLUICE_HOST_DEVICE static F silu(F x) {
    return x * kScale * scaled_logistic(fused(x, -kLog2E, -16.0f));
  }

  // x erfc(|x| / sqrt 2) / 2 left of 0, where 1 + erf(x) would cancel, and x minus that right of it. The logarithm of
  // erfc is a polynomial up to 6.5; beyond, where torch has 0, its power falls faster, and is 0 from kGeluEnd on.
  template <class F>
  SLUICE_HOST_DEVICE static F gelu(F x) {
    const F y = magnitude_up_to(kGeluEnd, x);
    const F tail = exp2_inside(fused(y, gelu_exponent_short(y), -1.0f));
    return fused(-y, tail, x * (x < 0.0f ? 0.0f : 1.0f));
  }
  static constexpr float kGeluEnd = 12.7911f;  // the polynomial's power is 2^-127.02 there

  // x / (1 + e^-2u), which is x (1 + tanh u) / 2, for u = sqrt(2 / pi) (x + 0.044715 x^3).
  template <class F>
  SLUICE_HOST_DEVICE static F gelu_tanh(F x) {
    const F slope = fused(x * x, -0.044715f * 1.5957691216f * kLog2E, -1.5957691216f * kLog2E);
    return x * kScale * scaled_logistic(fused(x, slope, -16.0f));
  }

  template <class F>
  SLUICE_HOST_DEVICE static F tanh(F x) {
    const F power = exp2_approximately(x * (2.0f * kLog2E));
    const F far = fused(reciprocal_approximately(1.0f + power), -2.0f, 1.0f);
    const F v = x * x;
    const F near = x * fused(v, tanh_tail_short(v), 1.0f);
    return magnitude(x) < 0.25f ? near : far;
  }

  // e^x - 1 for x < 0.
  SLUICE_HOST_DEVICE static float expm1_of_negative(float x) {
    const float far = exp2_approximately(x * kLog2E) - 1.0f;
    const float near = fused(x * x, expm1_tail_near(x), x);
    return x > -0.25f ? near : far;
  }

  // ln(1 + e^x) / beta
  SLUICE_HOST_DEVICE static float softplus(float x, float beta) {
    const float power = exp(-magnitude(x));
    return fused(power, log1p_factor(power), x > 0.0f ? x : 0.0f) * reciprocal_approximately(beta);
  }

  // x + sin(alpha x)^2 / beta
  SLUICE_HOST_DEVICE static float snake(float x, float alpha, float beta) {
    return snake_at(angle_of(alpha, x), x, beta);
  }
  // If is_near(alpha x).
  SLUICE_HOST_DEVICE static float snake_of_near(float x, float alpha, float beta) {
    return snake_at(near_angle(alpha * x), x, beta);
  }

 private:
  SLUICE_HOST_DEVICE static float snake_at(float angle, float x, float beta) {
    const float v = angle * angle;
    return fused(v * sine_squared_factor(v), reciprocal_approximately(beta), x);
  }
};

}  // namespace sluice
