// The stage functions in float32: at most 2 units in the last place where the function does not magnify its argument's
// own rounding more than fourfold.
//
// Where a sum or a product that is rounded would be magnified, its rounding error goes along as a second, low number.
#pragma once

#include "kernels/stages/polynomials.h"
#include "kernels/stages/reductions.h"

namespace sluice {

// e^(x + low) = (1 + tail) 2^exponent, |tail| < 0.42. Bounded where e^x is 0 or infinity in float32, with 2^24 to
// spare.
struct Exponential {
  float tail;
  int exponent;

  SLUICE_HOST_DEVICE explicit Exponential(float x, float low = 0.0f) {
    const float inside = bounded(x, -122.0f, 90.0f);
    const Nearest n = nearest_to_product(inside, 1.44269504f);
    // ln 2 in two parts, of which the first has few bits: its product with the integer is exact without an FMA too.
    const float r = fused(n.number, 2.12194440e-4f, fused(n.number, -0.693359375f, inside)) + low;
    tail = fused(r * r, exp_tail(r), r);
    exponent = n.bits - kNearestZero;
  }

  // (a + a_low) e^x 2^more. In two steps, because the power may have no float of its own; the first is exact.
  SLUICE_HOST_DEVICE float times(float a, int more = 0, float a_low = 0.0f) const {
    const int half = exponent >> 1;
    return (a + fused(a, tail, a_low)) * power_of_two(half) * power_of_two(exponent - half + more);
  }
};

// 1 + e^-|x + low| as a sum of two. What is divided by it may be subnormal, and is 2^24 times as large meanwhile.
struct Denominator {
  static constexpr float kScale = 1.0f / (1 << 24);
  Exponential power;
  float sum, sum_low;

  SLUICE_HOST_DEVICE explicit Denominator(float x, float low = 0.0f) : power(-magnitude(x), x < 0.0f ? low : -low) {
    const float scaled = power.times(1.0f, 24);
    sum = fused(scaled, kScale, 1.0f);
    sum_low = fused(scaled, kScale, 1.0f - sum);
  }
};

struct SingleFunctions {
  SLUICE_HOST_DEVICE static float exp(float x) { return Exponential(x).times(1.0f); }

  SLUICE_HOST_DEVICE static float log(float x) {
    const Mantissa m = mantissa_of(x);
    const float f = m.value - 1.0f;
    const float low = fused(m.exponent, -2.12194440e-4f, f * f * log_tail(f));
    return log_of_special(x, fused(m.exponent, 0.693359375f, f + low));
  }

  SLUICE_HOST_DEVICE static float sqrt(float x) {
#ifdef __CUDA_ARCH__
    return sqrtf(x);
#else
    return std::sqrt(x);
#endif
  }

  SLUICE_HOST_DEVICE static float sigmoid(float x) {
    const Denominator below(x);
    const bool left = x < 0.0f;
    const float value = quotient(left ? below.power.times(1.0f, 24) : 1.0f, 0.0f, below.sum, below.sum_low);
    return left ? value * Denominator::kScale : value;
  }

  // x / (1 + e^-(t + low)), where t has the sign of x.
  SLUICE_HOST_DEVICE static float gated(float x, float t, float low = 0.0f) {
    const Denominator below(t, low);
    const bool left = x < 0.0f;
    const float above = left ? below.power.times(bounded(x, -122.0f, 0.0f), 24) : 1.0f;
    const float value = quotient(above, 0.0f, below.sum, below.sum_low);
    return left ? fused(value, Denominator::kScale, x * 0.0f)
                : x * value;  // minus infinity times 0 is NaN, as in torch
  }

  SLUICE_HOST_DEVICE static float silu(float x) { return gated(x, x); }

  // x erfc(|x| / sqrt 2) / 2 left of 0, where 1 + erf(x) would cancel, and x less that right of it.
  SLUICE_HOST_DEVICE static float gelu(float x) {
    const float y = bounded(magnitude(x), 0.0f, 15.0f);
    const float square = y * y, square_low = fused(y, y, -square);
    const Exponential power(-0.5f * square, -0.5f * square_low);
    const float sum = y + 3.0f, sum_low = y < 3.0f ? y - (sum - 3.0f) : 3.0f - (sum - y);
    const float u = quotient(y - 1.0f, 0.0f, sum, sum_low), slope = gelu_tail_slope(u);
    const float factor = fused(slope, u, kGeluTail), factor_low = fused(slope, u, kGeluTail - factor);
    const float tail = y * factor, tail_low = fused(y, factor_low, fused(y, factor, -tail));
    return (x < 0.0f ? x * 0.0f : x) - power.times(tail, 0, tail_low);
  }

  // x / (1 + e^-t), which is x (1 + tanh(t / 2)) / 2, for t = 2 sqrt(2 / pi) (x + 0.044715 x^3).
  SLUICE_HOST_DEVICE static float gelu_tanh(float x) {
    constexpr double kSlope = 1.5957691216057307117597842397375, kCubic = kSlope * 0.044715;
    constexpr float a = static_cast<float>(kSlope), b = static_cast<float>(kCubic);
    constexpr float a_low = static_cast<float>(kSlope - a), b_low = static_cast<float>(kCubic - b);
    const float y = bounded(x, -12.0f, 12.0f);
    const float square = y * y, square_low = fused(y, y, -square);
    const float slope = fused(b, square, a);
    const float slope_low = fused(b, square, a - slope) + fused(b, square_low, fused(b_low, square, a_low));
    const float t = y * slope, t_low = fused(y, slope_low, fused(y, slope, -t));
    return gated(x, t, t_low);
  }

  SLUICE_HOST_DEVICE static float tanh(float x) {
    const float y = bounded(magnitude(x), 0.0f, 10.0f), v = x * x;
    const float power = Exponential(-2.0f * y).times(1.0f);
    const float difference = 1.0f - power, sum = 1.0f + power;
    const float far = quotient(difference, 1.0f - difference - power, sum, power - (sum - 1.0f));
    const float near = fused(v * tanh_tail(v), x, x);
    return y < 0.55f ? near : with_sign_of(far, x);
  }

  // e^x - 1 for x <= 0.
  SLUICE_HOST_DEVICE static float expm1_of_negative(float x) {
    const float inside = bounded(x, -20.0f, 0.0f);
    const Nearest n = nearest_to_product(inside, 1.44269504f);
    const float r = fused(n.number, 2.12194440e-4f, fused(n.number, -0.693359375f, inside));
    const float power = power_of_two(n.bits - kNearestZero);
    return -magnitude(fused(power, fused(r * r, expm1_tail(r), r), power - 1.0f));
  }

  // ln(1 + e^x) / beta
  SLUICE_HOST_DEVICE static float softplus(float x, float beta) {
    const float power = Exponential(-magnitude(x)).times(1.0f);
    return ((x > 0.0f ? x : 0.0f) + fused(power * log1p_tail(power), power, power)) / beta;
  }

  // x + sin(alpha x)^2 / beta
  SLUICE_HOST_DEVICE static float snake(float x, float alpha, float beta) {
    const Angle angle = angle_of(alpha, x);
    const float v = angle.rest * angle.rest, v_low = fused(angle.rest, angle.rest, -v);
    const float rest = fused(v * sine_squared_tail(v), v, v_low);
    // sin^2 as a sum of two, because x may cancel it.
    const float complement = 1.0f - v;
    const float square = angle.odd ? complement : v;
    const float square_low = angle.odd ? 1.0f - complement - v - rest : rest;
    const float term = square / beta;
    const float left = (fused(-term, beta, square) + square_low) * reciprocal_approximately(beta);
    return x + term + (magnitude(left) < magnitude(term) ? left : 0.0f);  // which is not so for a beta of 0 or infinity
  }
};

}  // namespace sluice
