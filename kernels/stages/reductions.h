// What both precisions of the stage functions begin with: 2^x, a logarithm's mantissa, a sine's angle.
#pragma once

#include "kernels/stages/polynomials.h"

namespace sluice {

SLUICE_HOST_DEVICE float exp2_approximately(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  const float inside = bounded(x, -127.0f, 128.0f);
  const Nearest n = nearest_to_product(inside, 1.0f);
  const float fraction = inside - n.number;
  const float power = fused(exp2_fraction(fraction), fraction, 1.0f);
  // The shift leaves the integer's low bits alone, as an exponent to be added. At 128 power is 1, which makes infinity.
  const float result =
      float_of(static_cast<int>(static_cast<unsigned>(bits_of(power)) + (static_cast<unsigned>(n.bits) << 23)));
  return x != x ? x : (x < -126.0f ? 0.0f : result);
#endif
}

// x = value 2^exponent, sqrt 1/2 <= value < sqrt 2, for a positive x, subnormal or not.
struct Mantissa {
  float value, exponent;
};
SLUICE_HOST_DEVICE Mantissa mantissa_of(float x) {
  const bool subnormal = x < 1.17549435e-38f;
  const int bits = bits_of(subnormal ? x * 8388608.0f : x);
  const int exponent = (bits - 0x3f3504f3) >> 23;  // of sqrt 1/2
  // As a float by way of the bits of 1.5 * 2^23 + exponent: conversions are slow.
  const float number = float_of(exponent + kNearestZero) - kNearest;
  return {float_of(bits - (exponent << 23)), subnormal ? number - 23.0f : number};
}

// ln x where x is 0, negative, infinite or NaN, or `result`.
SLUICE_HOST_DEVICE float log_of_special(float x, float result) {
  const float infinity = float_of(0x7f800000);
  const float positive = x < infinity ? result : x;  // a NaN too
  const float zero_or_less = x < 0.0f ? float_of(0x7fc00000) : -infinity;
  return x <= 0.0f ? zero_or_less : positive;
}

// The whole number next to x, exactly for any x.
SLUICE_HOST_DEVICE double nearest(double x) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return rint(x);
#else
  return __builtin_rint(x);
#endif
}

// An angle less the nearest multiple of pi / 2, and whether that was an odd one: there a sine is a cosine.
struct Angle {
  float rest;
  bool odd;
};

// Of any float. 1 / pi comes in parts of 29 bits, whose products with a float are exact in double; one that is too
// large to have a fraction is whole turns, and falls out by itself.
SLUICE_HOST_DEVICE Angle far_angle(float angle) {
  const double x = angle;
  double turns = 0, part;
  part = x * 0x1.45f306dp-2, turns += part - nearest(part);
  part = x * 0x1.9391054p-31, turns += part - nearest(part);
  part = x * 0x1.4fe13abp-60, turns += part - nearest(part);
  part = x * 0x1.d1f534dp-89, turns += part - nearest(part);
  part = x * 0x1.b81b6c5p-118, turns += part - nearest(part);
  part = x * 0x1.5993c4p-149, turns += part - nearest(part);
  turns -= nearest(turns);
  const double quarters = nearest(turns + turns);
  return {static_cast<float>((turns - 0.5 * quarters) * 3.14159265358979323846), quarters != 0};
}

// Of a x. Up to 2^22 quarters it is reduced with pi / 2 in three parts (their products with whole numbers are exact in
// an FMA until they cancel) and with the rounding error of a x. Beyond, where a float hardly knows its phase, it is
// that of the rounded product, as in torch. There a GPU branches; on the CPU the general reduction serves all, because
// a loop with a branch would not become vector code.
SLUICE_HOST_DEVICE Angle angle_of(float a, float x) {
  constexpr float kMostNear = 6.5e6f;
  const float angle = a * x, low = fused(a, x, -angle);
#ifdef __CUDA_ARCH__
  if (magnitude(angle) > kMostNear) return far_angle(angle);
  const Nearest n = nearest_to_product(angle, 0.636619772f);
  const float rest =
      fused(n.number, 1.7151245e-15f, fused(n.number, 4.371139e-08f, fused(n.number, -1.57079637f, angle)));
  return {rest + low, (n.bits & 1) != 0};
#else
  const Angle result = far_angle(angle);
  return {result.rest + (magnitude(angle) > kMostNear ? 0.0f : low), result.odd};
#endif
}

}  // namespace sluice
