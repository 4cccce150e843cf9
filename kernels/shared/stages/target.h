// The target's arithmetic for the stage functions: fused products, bits of floats, and an approximation of 1 / x, which
// is one GPU instruction (2^x is in reductions.h, rsqrt in functions.h).
//
// On the CPU nothing here branches or calls libm, so that loops over stage functions are vectorised, and a fused
// product is one instruction or, on a target without it, a product and a sum.
#pragma once

#ifndef __CUDACC_RTC__  // NVRTC has global overloads, without a header
#include <bit>
#include <cmath>
#endif

#include "kernels/shared/common/qualifiers.h"
#ifdef SLUICE_INSTRUCTION_SET
#include "kernels/shared/stages/cpu/target.h"
#endif

namespace sluice {

SLUICE_HOST_DEVICE float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return fmaf(a, b, c);
#elif defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Rounded once on every target: for sums that cancel.
SLUICE_HOST_DEVICE float fused_exactly(float a, float b, float c) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__) || defined(__FMA__)
  return fused(a, b, c);
#else
  return static_cast<float>(static_cast<double>(a) * b + c);  // the product of floats is exact
#endif
}

// c0 + c1 x + c2 x^2 + ... by Horner's rule. F: float, or a vector of floats if the target has such functions.
template <class F>
SLUICE_HOST_DEVICE float polynomial(F, float last) {
  return last;
}
template <class F, class... Floats>
SLUICE_HOST_DEVICE F polynomial(F x, float constant, Floats... rest) {
  return fused(polynomial(x, rest...), x, constant);
}

SLUICE_HOST_DEVICE int bits_of(float value) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return __float_as_int(value);
#else
  return std::bit_cast<int>(value);
#endif
}
SLUICE_HOST_DEVICE float float_of(int bits) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return __int_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
SLUICE_HOST_DEVICE float magnitude(float x) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return fabsf(x);  // a modifier of the instruction that takes it
#else
  return __builtin_fabsf(x);
#endif
}
SLUICE_HOST_DEVICE float with_sign_of(float x, float sign) {
#if defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__)
  return copysignf(x, sign);
#else
  return __builtin_copysignf(x, sign);
#endif
}

// x, or the bound if x is beyond it; a NaN stays a NaN.
SLUICE_HOST_DEVICE float at_least(float x, float low) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(low));
  return result;
#else
  return x < low ? low : x;
#endif
}
SLUICE_HOST_DEVICE float at_most(float x, float high) {
#ifdef __CUDA_ARCH__
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(high));
  return result;
#else
  return x > high ? high : x;
#endif
}

// at_most(|x|, high), or any number if x is a NaN: the caller's use of x itself has to restore the NaN.
SLUICE_HOST_DEVICE float magnitude_up_to(float high, float x) {
#if defined(__AVX512F__)
  const int bits = bits_of(magnitude(x)), most = bits_of(high);  // in the order of the floats
  return float_of(bits < most ? bits : most);                    // one instruction, where gcc has three for floats
#else
  return at_most(magnitude(x), high);
#endif
}

// The integer nearest to x, for |x| < 2^22: `number`, and in the low bits of `bits`, where 0 is kNearestZero.
inline constexpr float kNearest = 12582912.0f;  // 1.5 * 2^23: a sum with it has no fraction bits
inline constexpr int kNearestZero = 0x4b400000;
struct Nearest {
  float number;
  int bits;
};
// For a b.
SLUICE_HOST_DEVICE Nearest nearest_to_product(float a, float b) {
  const float sum = fused(a, b, kNearest);
  return {sum - kNearest, bits_of(sum)};
}

// 2^(n + more) if it is normal, for n's bits as in Nearest, or n itself: the shift drops kNearestZero.
SLUICE_HOST_DEVICE float power_of_two(int bits, int more = 0) {
  return float_of(static_cast<int>((static_cast<unsigned>(bits) << 23) + (static_cast<unsigned>(127 + more) << 23)));
}

// x - n ln 2. ln 2 is a sum of two numbers, the first with few bits: its product with n is exact even without an FMA.
inline constexpr float kLog2 = 0.693359375f, kLog2Low = -2.12194440e-4f;
template <class F>
SLUICE_HOST_DEVICE F less_log2(F x, F n) {
  return fused(n, -kLog2Low, fused(n, -kLog2, x));
}

// 1 / x, good to 22 bits on a GPU, and there 0 if |x| >= 2^126.
SLUICE_HOST_DEVICE float reciprocal_approximately(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

// -a / b, almost correctly rounded, for 1/4 <= b < 2^128; b > 2^126 counts as infinite.
SLUICE_HOST_DEVICE float minus_quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  const float inverse = reciprocal_approximately(-b);
  const float first = a * inverse;
  // In this order a zero keeps its sign. An infinity gives NaN, which the maximum drops.
  return fused(fmaxf(fused(b, first, a), -3e38f), inverse, first);
#else
  return -a / (b > 0x1p126f ? float_of(0x7f800000) : b);
#endif
}

// 1 / b as a sum of two numbers, which a kernel computes once for a parameter that is a number; infinite for some
// subnormal b.
struct Reciprocal {
  float value, low;
  float finite;  // the value, or 0 if b is 0

  SLUICE_HOST_DEVICE explicit Reciprocal(float b) {
    value = reciprocal_approximately(b);
    const float left = fused_exactly(-value, b, 1.0f) * value;
    low = magnitude(left) < magnitude(value) ? left : 0.0f;  // it is not if b is 0 or infinite
    finite = magnitude(value) < float_of(0x7f800000) ? value : 0.0f;
  }
};

}  // namespace sluice
