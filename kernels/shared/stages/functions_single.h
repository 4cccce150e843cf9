// The stage functions in float32: at most 2 ulp if the function does not magnify its argument's own rounding more than
// fourfold (docs/measurements/functions.md).
//
// If the rounding error of a sum or a product would be magnified, it is carried as a second, low number. An
// alternative is computed before it is selected: inside the condition, it would become a branch on a GPU.
#pragma once

#include "kernels/shared/stages/polynomials.h"
#include "kernels/shared/stages/reductions.h"

namespace sluice {

// 2^(a (b + b_low)) = (1 + tail) 2^n, |tail| < 0.42. `about` is close to b + b_low even if b alone is not.
struct Power {
  float tail;
  int bits;  // bits of n, as in Nearest

  SLUICE_HOST_DEVICE Power(float a, float b, float b_low, float about) {
    const Nearest n = nearest_to_product(a, about);
    const float r = fused(a, b_low, fused_exactly(a, b, -n.number));
    tail = r * exp2_fraction_long(r);
    bits = n.bits;
  }
  SLUICE_HOST_DEVICE Power(float a, float b, float b_low) : Power(a, b, b_low, b) {}
  // e^x, by ln 2 in two parts, whose products need not be exact.
  SLUICE_HOST_DEVICE explicit Power(float x) {
    const Nearest n = nearest_to_product(x, 1.44269504f);
    const float r = less_log2(x, n.number);
    tail = fused(r * r, exp_tail(r), r);
    bits = n.bits;
  }

  // The power times 2^more, if 2^(n + more) is normal.
  SLUICE_HOST_DEVICE float times(float a, int more = 0) const { return fused(a, tail, a) * power_of_two(bits, more); }
  // 2^more plus that.
  SLUICE_HOST_DEVICE float plus_one(int more = 0) const {
    const float unit = power_of_two(bits, more);
    return fused(unit, tail, power_of_two(kNearestZero, more) + unit);
  }
};

struct SingleFunctions {
  SLUICE_HOST_DEVICE static float exp(float x) {
    const Power power(at_most(at_least(x, -105.0f), 90.0f));
    // In two steps: e^x may be subnormal, and 2^n may overflow although e^x does not.
    const int half = (power.bits - kNearestZero) >> 1;
    return fused(1.0f, power.tail, 1.0f) * power_of_two(half) * power_of_two(power.bits - half);
  }

#if defined(SLUICE_INSTRUCTION_SET) && defined(__AVX512F__)
  // For a vector: AVX-512 multiplies by powers of two of any exponent.
  SLUICE_HOST_DEVICE static FloatVector exp(FloatVector x) {
    const FloatVector inside = at_most(at_least(x, -105.0f), 90.0f);
    const FloatVector n = nearest(inside * 1.44269504f), r = less_log2(inside, n);
    return times_power_of_two(1.0f + fused(r * r, exp_tail(r), r), n);
  }
#endif

  SLUICE_HOST_DEVICE static float log(float x) {
    const Mantissa m = mantissa_of(x);
    const float f = m.value - 1.0f;
    const float low = fused(m.exponent, kLog2Low, f * f * log_tail(f));
    return log_of_special(x, fused(m.exponent, kLog2, f + low));
  }

  SLUICE_HOST_DEVICE static float sqrt(float x) {
#ifdef __CUDA_ARCH__
    return sqrtf(x);
#else
    return std::sqrt(x);
#endif
  }

  SLUICE_HOST_DEVICE static float sigmoid(float x) { return over_one_and_exp(1.0f, x); }

  SLUICE_HOST_DEVICE static float silu(float x) { return over_one_and_exp(x, x); }

  // a / (1 + 2^-p) in quarters, so that a power near 2^128 has results too. Larger powers give 0, as infinity does in
  // torch; p <= 124 and -p <= 129.4.
  SLUICE_HOST_DEVICE static float over_one_and(float a, const Power& power) {
    return minus_quotient(-0.25f * a, power.plus_one(-2));
  }
  SLUICE_HOST_DEVICE static float over_one_and_exp(float a, float x) {
    return over_one_and(a, Power(-at_most(at_least(x, -89.5f), 86.0f)));
  }

  // x erfc(|x| / sqrt 2) / 2 left of 0, where 1 + erf(x) would cancel, and x minus that right of it. The logarithm of
  // erfc is a polynomial, y (line + y bend), without a power of y^2 or a quotient. It grows too fast beyond 6.5, where
  // torch has 0 already.
  SLUICE_HOST_DEVICE static float gelu(float x) {
    constexpr float kLast = 10.3876f;  // gives 2^-127, which becomes 0
    const float y = magnitude_up_to(kLast, x);
    const float bend = y * gelu_exponent_tail(y);
    const float line = fused(y, kGeluExponentSlope, kGeluExponent);
    const float line_low = fused_exactly(y, kGeluExponentSlope, kGeluExponent - line);
    const Power power(-y, line, fused(y, bend, line_low), fused(y, bend, line));
    return fused(fused(y, power.tail, y), -power_of_two(power.bits, -1), x * (x < 0.0f ? 0.0f : 1.0f));
  }

  // x / (1 + e^-t), which is x (1 + tanh(t / 2)) / 2, for t = 2 sqrt(2 / pi) (x + 0.044715 x^3).
  SLUICE_HOST_DEVICE static float gelu_tanh(float x) {
    // 2 sqrt(2 / pi) log2 e, whose low part is 2^-27 of it, and 0.044715 times that.
    constexpr float kSlope = 2.30220820f, kCubic = 0.102943240f;
    const float y = at_most(at_least(x, -10.09f), 6.0f), square = y * y;
    const float slope = fused(square, kCubic, kSlope), slope_low = fused_exactly(square, kCubic, kSlope - slope);
    return over_one_and(x, Power(-y, slope, slope_low));
  }

  SLUICE_HOST_DEVICE static float tanh(float x) {
    const float y = at_most(magnitude(x), 10.0f), v = y * y;
    const float far = fused(reciprocal_approximately(Power(2.0f * y).plus_one()), -2.0f, 1.0f);
    const float near = fused(v * tanh_tail(v), y, y);
    return with_sign_of(y < 0.7f ? near : far, x);
  }

  // e^x - 1 for x < 0.
  SLUICE_HOST_DEVICE static float expm1_of_negative(float x) {
    const float inside = at_least(x, -20.0f);
    const Nearest n = nearest_to_product(inside, 1.44269504f);
    const float r = less_log2(inside, n.number);
    const float power = power_of_two(n.bits);
    return fused(power, fused(r * r, expm1_tail(r), r), power - 1.0f);
  }

  // ln(1 + e^x) / beta
  SLUICE_HOST_DEVICE static float softplus(float x, float beta) {
    const float power = Power(at_least(-magnitude(x), -105.0f)).times(1.0f, 32) * 0x1p-32f;
    const float value = at_least(x, 0.0f) + fused(power * log1p_tail(power), power, power);
    const Reciprocal inverse(beta);
    return fused(value, inverse.value, value * inverse.low);
  }

  // x + sin(alpha x)^2 / beta
  SLUICE_HOST_DEVICE static float snake(float x, float alpha, float beta) {
    return snake_at(quarter_angle_of(alpha, x), x, beta);
  }
  // If is_near(alpha x).
  SLUICE_HOST_DEVICE static float snake_of_near(float x, float alpha, float beta) {
    return snake_at(near_quarter_angle_of(alpha, x), x, beta);
  }

 private:
  SLUICE_HOST_DEVICE static float snake_at(Angle angle, float x, float beta) {
    const float v = angle.rest * angle.rest, v_low = fused(angle.rest, angle.rest, -v);
    const float rest = fused(v * sine_squared_tail(v), v, v_low);
    // sin^2 as a sum of two numbers, because x may cancel it.
    const float complement = 1.0f - v, complement_low = 1.0f - complement - v - rest;
    const float square = angle.odd ? complement : v, square_low = angle.odd ? complement_low : rest;
    const Reciprocal inverse(beta);
    return fused(square, inverse.value, x) + fused(square, inverse.low, square_low * inverse.finite);
  }
};

}  // namespace sluice
