// The stage functions' operations on a vector of AVX-512, which has instructions for clamps, for the steps of 2^x and
// for an approximation of 1 / x; gcc makes none of them from a loop over numbers. Other instruction sets use the loop.
#pragma once

#include "kernels/shared/cpu/sum_vectors.h"

namespace sluice {

#if defined(__AVX512F__)
namespace {  // a copy for each instruction set (kernels/shared/cpu/instruction_set.h)

using FloatVector = Vector<float>;

SLUICE_HOST_DEVICE FloatVector as_vector(FloatVector x) { return x; }
SLUICE_HOST_DEVICE FloatVector as_vector(float x) { return broadcast(x); }

template <class A, class B, class C>
  requires(std::is_same_v<A, FloatVector> || std::is_same_v<B, FloatVector> || std::is_same_v<C, FloatVector>)
SLUICE_HOST_DEVICE FloatVector fused(A a, B b, C c) {
  return _mm512_fmadd_ps(as_vector(a), as_vector(b), as_vector(c));
}

SLUICE_HOST_DEVICE FloatVector magnitude(FloatVector x) { return _mm512_abs_ps(x); }

// Returns the second operand if either is a NaN. gcc 12 warns of the intrinsics without a mask.
SLUICE_HOST_DEVICE FloatVector lesser(FloatVector a, FloatVector b) { return _mm512_maskz_min_ps(0xffff, a, b); }
SLUICE_HOST_DEVICE FloatVector at_most(FloatVector x, float high) { return lesser(broadcast(high), x); }
SLUICE_HOST_DEVICE FloatVector at_least(FloatVector x, float low) {
  return _mm512_maskz_max_ps(0xffff, broadcast(low), x);
}
SLUICE_HOST_DEVICE FloatVector magnitude_up_to(float high, FloatVector x) { return at_most(magnitude(x), high); }

// 1 / x, good to 27 bits: for an infinity the correction is a NaN, which is dropped.
SLUICE_HOST_DEVICE FloatVector reciprocal_approximately(FloatVector x) {
  const FloatVector first = _mm512_maskz_rcp14_ps(0xffff, x);
  return fused(first, lesser(_mm512_fnmadd_ps(x, first, broadcast(1.0f)), broadcast(1.0f)), first);
}

// The nearest whole number to x, the rest of x, and value 2^n. For an infinity the rest is 0.
SLUICE_HOST_DEVICE FloatVector nearest(FloatVector x) { return _mm512_maskz_roundscale_ps(0xffff, x, 0); }
SLUICE_HOST_DEVICE FloatVector fraction_of(FloatVector x) { return _mm512_maskz_reduce_ps(0xffff, x, 0); }
SLUICE_HOST_DEVICE FloatVector times_power_of_two(FloatVector value, FloatVector n) {
  return _mm512_maskz_scalef_ps(0xffff, value, n);
}

}  // namespace
#endif

}  // namespace sluice
