// The first steps of the stage functions in both precisions: 2^x, a logarithm's mantissa, a sine's angle.
#pragma once

#include "kernels/shared/stages/polynomials.h"

namespace sluice {

// 2^x, to 22 bits on a GPU and 18 on the CPU; subnormal results may be 0.
#ifdef __CUDA_ARCH__
SLUICE_HOST_DEVICE float exp2_approximately(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
SLUICE_HOST_DEVICE float exp2_inside(float x) { return exp2_approximately(x); }
#else
// For -127.5 < x < 128.5: 2^-127 is 0, 2^128 infinity.
SLUICE_HOST_DEVICE float exp2_inside(float x) {
  const Nearest n = nearest_to_product(x, 1.0f);
  const float fraction = x - n.number;
  return fused(exp2_fraction(fraction), fraction, 1.0f) * power_of_two(n.bits);
}
// For any x. Later code does not compare x again: GCC would thread the branches, and turn them into masks.
SLUICE_HOST_DEVICE float exp2_approximately(float x) { return exp2_inside(at_most(at_least(x, -127.0f), 128.0f)); }
#if defined(SLUICE_INSTRUCTION_SET) && defined(__AVX512F__)
namespace {
SLUICE_HOST_DEVICE FloatVector exp2_approximately(FloatVector x) {
  const FloatVector fraction = fraction_of(x);
  return times_power_of_two(fused(exp2_fraction(fraction), fraction, 1.0f), x - fraction);
}
SLUICE_HOST_DEVICE FloatVector exp2_inside(FloatVector x) {  // 2^-127 is 0 here too
  const FloatVector sum = x + kNearest, fraction = x - (sum - kNearest);
  const FloatVector power = (FloatVector)(((IntVector)sum << 23) + (127u << 23));
  return fused(exp2_fraction(fraction), fraction, 1.0f) * power;
}
}  // namespace
#endif
#endif

// x = value 2^exponent, sqrt 1/2 <= value < sqrt 2, for a positive x, subnormal or not.
struct Mantissa {
  float value, exponent;
};
SLUICE_HOST_DEVICE Mantissa mantissa_of(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const int bits = bits_of(subnormal ? x * 8388608.0f : x);
  const int exponent = (bits - 0x3f3504f3) >> 23;  // counted from sqrt 1/2
  // Converted to float through the bits of 1.5 * 2^23 + exponent: conversions are slow.
  const float number = float_of(exponent + kNearestZero) - kNearest;
  return {float_of(bits - (exponent << 23)), subnormal ? number - 23.0f : number};
}

// ln x if x is 0, negative, infinite or NaN, else `result`.
SLUICE_HOST_DEVICE float log_of_special(float x, float result) {
  const float infinity = float_of(0x7f800000);
  const float positive = x < infinity ? result : x;  // a NaN too
  const float zero_or_less = x < 0.0f ? float_of(0x7fc00000) : -infinity;
  return x <= 0.0f ? zero_or_less : positive;
}

// The nearest whole number, exactly for any x.
SLUICE_HOST_DEVICE double nearest(double x) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return rint(x);
#else
  return __builtin_rint(x);
#endif
}

// The angle of a sine over pi, minus the nearest whole number, for any float. 1 / pi is a sum of numbers of 29 bits,
// whose products with a float are exact in double; a product too large to have a fraction is whole, and drops out.
SLUICE_HOST_DEVICE double half_turns(float angle) {
  const double x = angle;
  double turns = 0, part;
  part = x * 0x1.45f306dp-2, turns += part - nearest(part);
  part = x * 0x1.9391054p-31, turns += part - nearest(part);
  part = x * 0x1.4fe13abp-60, turns += part - nearest(part);
  part = x * 0x1.d1f534dp-89, turns += part - nearest(part);
  part = x * 0x1.b81b6c5p-118, turns += part - nearest(part);
  part = x * 0x1.5993c4p-149, turns += part - nearest(part);
  return turns - nearest(turns);
}

// An angle minus the nearest multiple of pi / 2, and whether that was an odd one: then a sine is a cosine.
struct Angle {
  float rest;
  bool odd;
};
SLUICE_HOST_DEVICE Angle far_quarter_angle(float angle) {
  const double turns = half_turns(angle), quarters = nearest(turns + turns);
  return {static_cast<float>((turns - 0.5 * quarters) * 3.14159265358979323846), quarters != 0};
}

// Up to kMostNear an angle is reduced with pi as a sum, whose products with whole numbers are exact in an FMA until
// they cancel. Beyond, where a float hardly determines its angle, the rounded product is reduced, as in torch: a GPU
// branches. On the CPU a loop with a branch would not be vectorised: it computes both, and skips the far reduction in
// blocks without such an angle (evaluate.h). Without an FMA the far reduction serves all. The product's rounding
// may exceed pi / 4 by 1/16: sine_squared_tail is as accurate up to there.
inline constexpr float kMostNear = 1.5e6f;
// On the CPU, where the far reduction serves more.
inline constexpr float kMostNearOnCpu = 1e6f;
SLUICE_HOST_DEVICE bool is_near(float angle) { return !(magnitude(angle) > kMostNearOnCpu); }
#if defined(__CUDA_ARCH__) || defined(__FMA__)
inline constexpr bool kReducesNear = true;
#else
inline constexpr bool kReducesNear = false;
#endif

// For a x, with the rounding error of that product.
SLUICE_HOST_DEVICE Angle near_quarter_angle_of(float a, float x) {
  const float angle = a * x, low = fused(a, x, -angle);
  const Nearest n = nearest_to_product(angle, 0.636619772f);
  const float first = fused(n.number, 4.371139e-08f, fused(n.number, -1.57079637f, angle));
  // Whether n is odd, as a comparison, which is vectorised.
  return {fused(n.number, 1.7151245e-15f, first) + low, static_cast<int>(static_cast<unsigned>(n.bits) << 31) < 0};
}
SLUICE_HOST_DEVICE Angle quarter_angle_of(float a, float x) {
#ifdef __CUDA_ARCH__
  const float angle = a * x, low = fused(a, x, -angle);
  const Nearest n = nearest_to_product(angle, 0.636619772f);
  const float first = fused(n.number, 4.371139e-08f, fused(n.number, -1.57079637f, angle));
  Angle result{fused(n.number, 1.7151245e-15f, first) + low, (n.bits & 1) != 0};
  if (magnitude(angle) > kMostNear) result = far_quarter_angle(angle);
  return result;
#else
  const float angle = a * x;
  Angle result = far_quarter_angle(angle);
  result.rest += magnitude(angle) > kMostNear ? 0.0f : fused(a, x, -angle);
  if constexpr (kReducesNear) {
    const Angle near = near_quarter_angle_of(a, x);
    const bool takes_near = is_near(angle);
    result = {takes_near ? near.rest : result.rest, takes_near ? near.odd : result.odd};
  }
  return result;
#endif
}

// An angle minus the nearest multiple of pi, for half types: good to 2^-20 if x does not outweigh it.
SLUICE_HOST_DEVICE float near_angle(float angle) {
  const float n = nearest_to_product(angle, 0.318309886f).number;
  return fused(n, 8.742278e-08f, fused(n, -3.14159274f, angle));
}
SLUICE_HOST_DEVICE float angle_of(float a, float x) {
  const float angle = a * x;
#ifdef __CUDA_ARCH__
  float result = near_angle(angle);
  if (magnitude(angle) > kMostNear) result = static_cast<float>(half_turns(angle) * 3.14159265358979323846);
  return result;
#else
  const float far = static_cast<float>(half_turns(angle) * 3.14159265358979323846);
  if constexpr (kReducesNear) {
    const float near = near_angle(angle);
    return is_near(angle) ? near : far;
  } else {
    return far;
  }
#endif
}

}  // namespace sluice
