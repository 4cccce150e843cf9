// The taps' fragments in shared memory (toeplitz.h), and what confines infinities to their windows.
#pragma once

#include "kernels/common/vector.cuh"
#include "kernels/mma/mma_sync.cuh"
#include "kernels/mma/toeplitz.h"

namespace sluice {

template <class Element>
inline constexpr int kStepBytes = kStepPositions * static_cast<int>(sizeof(Element));

__device__ __forceinline__ uint2 load_shared_pairs(std::uint32_t from) {
  uint2 pairs;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs.x) : "r"(from) : "memory");
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs.y) : "r"(from + 16) : "memory");
  return pairs;
}

// Replaces infinities and NaN by zeros.
template <class Element>
__device__ __forceinline__ std::uint32_t finite_or_zero(std::uint32_t pair) {
  constexpr std::uint32_t kExponent = std::is_same_v<Element, __half> ? 0x7c00 : 0x7f80;
  if ((pair & kExponent) == kExponent) pair &= 0xffff0000u;
  if ((pair >> 16 & kExponent) == kExponent) pair &= 0x0000ffffu;
  return pair;
}

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) <= 3.402823466e38f; }

// Whether one of the sums is not finite: then zero times it is NaN, else zero.
template <int Tiles, int Sums>
__device__ __forceinline__ bool is_any_infinite(const float (&sums)[Tiles][Sums]) {
  float zero = 0.0f;
#pragma unroll
  for (int i = 0; i < Tiles * Sums; ++i) zero = multiply_add(sums[i / Sums][i % Sums], 0.0f, zero);
  return zero != 0.0f;
}

}  // namespace sluice
