// The stage functions in float32: at most 2 units in the last place where the function does not magnify its argument's
// own rounding more than fourfold (docs/measurements/functions.md).
//
// Where a sum or a product that is rounded would be magnified, its rounding error goes along as a second, low number.
// An alternative is computed before it is selected: written into the condition, it would become a branch on a GPU.
#pragma once

#include "kernels/stages/polynomials.h"
#include "kernels/stages/reductions.h"

namespace sluice {

// e^(x + low) = (1 + tail) 2^n, |tail| < 0.42, for -120 < x < 120.
struct Exponential {
  float tail;
  int bits;  // of n, as Nearest has it

  SLUICE_HOST_DEVICE explicit Exponential(float x) {
    const Nearest n = nearest_to_product(x, 1.44269504f);
    set(less_log2(x, n.number), n.bits);
  }
  SLUICE_HOST_DEVICE Exponential(float x, float low) {
    const Nearest n = nearest_to_product(x, 1.44269504f);
    set(fused(n.number, -kLog2, x) + fused(n.number, -kLog2Low, low), n.bits);  // rounded once
  }

  // a e^x 2^more, where e^x 2^more has a normal float.
  SLUICE_HOST_DEVICE float times(float a, int more = 0) const { return fused(a, tail, a) * power_of_two(bits, more); }
  // Of a + a_low.
  SLUICE_HOST_DEVICE float times_sum(float a, float a_low, int more) const {
    return (a + fused(a, tail, a_low)) * power_of_two(bits, more);
  }

 private:
  SLUICE_HOST_DEVICE void set(float r, int exponent) {
    tail = fused(r * r, exp_tail(r), r);
    bits = exponent;
  }
};

// 1 + e^x for a negative x of at least kLowest, as a sum of two. The power may be subnormal, and is 2^32 times as large
// meanwhile: `scaled`.
struct Denominator {
  static constexpr float kScale = 0x1p-32f, kLowest = -109.5f;  // x e^x is 0 there, and e^x 2^32 is normal
  static constexpr int kMore = 32;
  Exponential power;
  float scaled, sum, sum_low;

  SLUICE_HOST_DEVICE explicit Denominator(Exponential of) : power(of) {
    scaled = power.times(1.0f, kMore);
    sum = fused(scaled, kScale, 1.0f);
    sum_low = fused(scaled, kScale, 1.0f - sum);
  }
};

struct SingleFunctions {
  SLUICE_HOST_DEVICE static float exp(float x) {
    const Exponential power(at_most(at_least(x, -105.0f), 90.0f));
    // In two steps, because e^x may be subnormal, and 2^n too large where e^x is not.
    const int half = (power.bits - kNearestZero) >> 1;
    return fused(1.0f, power.tail, 1.0f) * power_of_two(half) * power_of_two(power.bits - half);
  }

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

  SLUICE_HOST_DEVICE static float sigmoid(float x) {
    const Denominator below{Exponential(at_least(-magnitude(x), Denominator::kLowest))};
    const bool left = x < 0.0f;
    const float value = quotient(left ? below.scaled : 1.0f, below.sum, below.sum_low);
    return value * (left ? Denominator::kScale : 1.0f);
  }

  // x / (1 + e^-|t|) right of 0 and x / (1 + e^|t|) left of it, by the power of -|t|.
  SLUICE_HOST_DEVICE static float gated(float x, Exponential power) {
    const Denominator below(power);
    const bool left = x < 0.0f;
    const float above = below.power.times(at_least(x, Denominator::kLowest), Denominator::kMore);
    const float value = quotient(left ? above : 1.0f, below.sum, below.sum_low);
    // What is added is nothing, but for the NaN of minus infinity, as in torch.
    return fused(left ? Denominator::kScale : x, value, left ? x * 0.0f : -0.0f);
  }

  SLUICE_HOST_DEVICE static float silu(float x) {
#ifdef __CUDA_ARCH__
    return gated(x, Exponential(at_least(-magnitude(x), Denominator::kLowest)));
#else
    // x / (1 + e^-x) in halves, because e^-x may be 2^128: the CPU's quotient is exact, and the sum rounds but once.
    constexpr float kLeft = -88.7228394f;  // e^-x is infinite beyond, as in torch
    const Exponential power(-at_most(at_least(x, kLeft), 86.0f));
    const float half = power_of_two(power.bits, -1);
    const float value = 0.5f * x / fused(half, power.tail, 0.5f + half);
    return x < kLeft ? x * 0.0f : value;
#endif
  }

  // x erfc(|x| / sqrt 2) / 2 left of 0, where 1 + erf(x) would cancel, and x less that right of it. The logarithm of
  // erfc is a polynomial, y (line + y bend): neither a power of y^2 nor a quotient comes in. It grows too fast
  // beyond 6.5, where torch has 0 already.
  SLUICE_HOST_DEVICE static float gelu(float x) {
    constexpr float kLast = 10.3876f;  // has 2^-127, which becomes 0
    const float y = at_most(magnitude(x), kLast);
    const float bend = y * gelu_exponent_tail(y);
    const float line = fused(y, kGeluExponentSlope, kGeluExponent);
    const float line_low = fused_exactly(y, kGeluExponentSlope, kGeluExponent - line);
    const Nearest n = nearest_to_product(-y, fused(y, bend, line));
    const float r = fused(-y, fused(y, bend, line_low), fused_exactly(-y, line, -n.number));
    const float tail = r * exp2_fraction_long(r);
    return fused(fused(y, tail, y), -power_of_two(n.bits, -1), x * (x < 0.0f ? 0.0f : 1.0f));
  }

  // x / (1 + e^-t), which is x (1 + tanh(t / 2)) / 2, for t = 2 sqrt(2 / pi) (x + 0.044715 x^3).
  SLUICE_HOST_DEVICE static float gelu_tanh(float x) {
    constexpr double kSlope = 1.5957691216057307117597842397375, kCubic = kSlope * 0.044715;
    constexpr float a = static_cast<float>(kSlope), b = static_cast<float>(kCubic);
    constexpr float a_low = static_cast<float>(kSlope - a), b_low = static_cast<float>(kCubic - b);
    const float y = at_most(at_least(x, -12.0f), 12.0f);
    const float square = y * y, square_low = fused(y, y, -square);
    const float slope = fused(b, square, a);
    const float slope_low = fused(b, square, a - slope) + fused(b, square_low, fused(b_low, square, a_low));
    const float t = y * slope, t_low = fused(y, slope_low, fused(y, slope, -t));
    const float inside = at_least(-magnitude(t), Denominator::kLowest);
    return gated(x, Exponential(inside, x < 0.0f ? t_low : -t_low));
  }

  SLUICE_HOST_DEVICE static float tanh(float x) {
    const float y = at_most(magnitude(x), 10.0f), v = y * y;
    const float power = Exponential(-2.0f * y).times(1.0f);
    const float sum = 1.0f + power;
    const float far = quotient(1.0f - power, sum, power - (sum - 1.0f));
    const float near = fused(v * tanh_tail(v), y, y);
    return with_sign_of(y < 0.55f ? near : far, x);
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
    const float power =
        Exponential(at_least(-magnitude(x), -105.0f)).times(1.0f, Denominator::kMore) * Denominator::kScale;
    const float value = (x > 0.0f ? x : 0.0f) + fused(power * log1p_tail(power), power, power);
    const Quotient result(value, 0.0f, beta);
    return result.value + result.low;
  }

  // x + sin(alpha x)^2 / beta
  SLUICE_HOST_DEVICE static float snake(float x, float alpha, float beta) {
    return snake_at(quarter_angle_of(alpha, x), x, beta);
  }
  // Where is_near(alpha x).
  SLUICE_HOST_DEVICE static float snake_of_near(float x, float alpha, float beta) {
    return snake_at(near_quarter_angle_of(alpha, x), x, beta);
  }

 private:
  SLUICE_HOST_DEVICE static float snake_at(Angle angle, float x, float beta) {
    const float v = angle.rest * angle.rest, v_low = fused(angle.rest, angle.rest, -v);
    const float rest = fused(v * sine_squared_tail(v), v, v_low);
    // sin^2 as a sum of two, because x may cancel it.
    const float complement = 1.0f - v, complement_low = 1.0f - complement - v - rest;
    const Quotient term(angle.odd ? complement : v, angle.odd ? complement_low : rest, beta);
    return x + term.value + term.low;
  }
};

}  // namespace sluice
