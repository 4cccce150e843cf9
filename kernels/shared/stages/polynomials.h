// Written by tools/minimax.py: the polynomials of functions_single.h and functions_half.h, with the number of correct
// bits.
#pragma once

#include "kernels/shared/stages/target.h"

namespace sluice {

// (2^x - 1) / x, |x| <= 1/2: 18.4 bits
template <class F>
SLUICE_HOST_DEVICE F exp2_fraction(F x) {
  return polynomial(x, 6.931242e-01f, 2.4024092e-01f, 5.590651e-02f, 9.583173e-03f);
}

// the same: 28.3 bits
template <class F>
SLUICE_HOST_DEVICE F exp2_fraction_long(F x) {
  return polynomial(x, 6.931472e-01f, 2.4022648e-01f, 5.5503596e-02f, 9.6185e-03f, 1.339098e-03f, 1.5328903e-04f);
}

// (e^x - 1 - x) / x^2, |x| <= ln 2 / 2, for e^x: 28.3 bits
template <class F>
SLUICE_HOST_DEVICE F exp_tail(F x) {
  return polynomial(x, 4.9999994e-01f, 1.6666521e-01f, 4.166827e-02f, 8.368681e-03f, 1.3820438e-03f);
}

// the same for e^x - 1: 31.1 bits
template <class F>
SLUICE_HOST_DEVICE F expm1_tail(F x) {
  return polynomial(x, 5e-01f, 1.6666666e-01f, 4.1666493e-02f, 8.333545e-03f, 1.3932334e-03f, 1.9762536e-04f);
}

// the same, -1/4 <= x <= 0: 21.7 bits
template <class F>
SLUICE_HOST_DEVICE F expm1_tail_near(F x) {
  return polynomial(x, 4.9997747e-01f, 1.6612133e-01f, 3.7862495e-02f);
}

// (ln(1 + x) - x) / x^2, sqrt 1/2 <= 1 + x <= sqrt 2: 27.8 bits
template <class F>
SLUICE_HOST_DEVICE F log_tail(F x) {
  return polynomial(x, -4.9999988e-01f, 3.3333325e-01f, -2.5001612e-01f, 2.0002028e-01f, -1.6608332e-01f,
                    1.4180051e-01f, -1.3247877e-01f, 1.2919423e-01f, -7.6285854e-02f);
}

// the same: 19.5 bits
template <class F>
SLUICE_HOST_DEVICE F log_tail_short(F x) {
  return polynomial(x, -5.000087e-01f, 3.3319047e-01f, -2.4917665e-01f, 2.045149e-01f, -1.8604293e-01f, 1.1961647e-01f);
}

// (ln(1 + x) - x) / x^2, 0 <= x <= 1: 30.1 bits
template <class F>
SLUICE_HOST_DEVICE F log1p_tail(F x) {
  return polynomial(x, -4.9999988e-01f, 3.3332714e-01f, -2.4988864e-01f, 1.9899623e-01f, -1.6135171e-01f,
                    1.24795295e-01f, -8.323895e-02f, 4.2114824e-02f, -1.3691671e-02f, 2.0845444e-03f);
}

// ln(1 + x) / x, 0 <= x <= 1: 19.6 bits
template <class F>
SLUICE_HOST_DEVICE F log1p_factor(F x) {
  return polynomial(x, 9.9999875e-01f, -4.9987012e-01f, 3.310982e-01f, -2.350513e-01f, 1.4924502e-01f, -6.64187e-02f,
                    1.4146215e-02f);
}

// (tanh(x) / x - 1) / x^2 by x^2, |x| <= 0.7: 26.0 bits
template <class F>
SLUICE_HOST_DEVICE F tanh_tail(F x) {
  return polynomial(x, -3.333319e-01f, 1.3329132e-01f, -5.3559966e-02f, 2.0094356e-02f, -5.14049e-03f);
}

// the same, |x| <= 1/4: 21.0 bits
template <class F>
SLUICE_HOST_DEVICE F tanh_tail_short(F x) {
  return polynomial(x, -3.3324572e-01f, 1.287644e-01f);
}

// (sin^2(x) / x^2 - 1) / x^2 by x^2, |x| <= pi / 4: 29.8 bits
template <class F>
SLUICE_HOST_DEVICE F sine_squared_tail(F x) {
  return polynomial(x, -3.3333328e-01f, 4.44437e-02f, -3.1711087e-03f, 1.3456964e-04f);
}

// sin^2(x) / x^2 by x^2, |x| <= pi / 2: 19.9 bits
template <class F>
SLUICE_HOST_DEVICE F sine_squared_factor(F x) {
  return polynomial(x, 9.99999e-01f, -3.333157e-01f, 4.439242e-02f, -3.1189255e-03f, 1.1593663e-04f);
}

// -log2(erfc(y / sqrt 2)) / y, 0 <= y <= 6.5, as gelu(-y) / y up to 2 and x - gelu(x) show it: 28.8 bits
inline constexpr float kGeluExponent = 1.1511042e+00f;
inline constexpr float kGeluExponentSlope = 4.5922282e-01f;
template <class F>
SLUICE_HOST_DEVICE F gelu_exponent_tail(F x) {
  return polynomial(x, 5.2425712e-02f, -6.905091e-03f, -5.4300202e-05f, 3.182912e-04f, -9.224828e-05f, 1.4660692e-05f,
                    -1.3175788e-06f, 5.227289e-08f);
}

// log2(erfc(y / sqrt 2)) / y, 0 <= y <= 6.5: 17.7 bits
template <class F>
SLUICE_HOST_DEVICE F gelu_exponent_short(F x) {
  return polynomial(x, -1.1511941e+00f, -4.5859793e-01f, -5.383549e-02f, 8.451054e-03f, -9.170396e-04f, 6.0001446e-05f,
                    -1.7602991e-06f);
}

}  // namespace sluice
