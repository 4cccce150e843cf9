// The taps' fragments in shared memory (toeplitz.h), and what confines infinities to their windows.
#pragma once

#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/mma/mma_sync.cuh"
#include "kernels/shared/mma/toeplitz.h"

namespace sluice {

template <class Element>
inline constexpr int kStepBytes = kStepPositions * static_cast<int>(sizeof(Element));

__device__ __forceinline__ uint2 load_shared_pairs(std::uint32_t from) {
  uint2 pairs;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs.x) : "r"(from) : "memory");
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(pairs.y) : "r"(from + 16) : "memory");
  return pairs;
}

// Fills both copies of a row of taps, by `ranks` threads. `tap_of(distance)`: the tap so far from a window's first, or
// zero where there is none.
template <class Element, class TapOf>
__device__ __forceinline__ void fill_tap_copies(char* copies, int steps, int rank, int ranks, const TapOf& tap_of) {
  constexpr int kAtOnce = 4;
  auto* const first = reinterpret_cast<Element*>(copies);
  auto* const second = reinterpret_cast<Element*>(copies + tap_copy_bytes(steps));
  const int elements = tap_copy_elements(steps);
#pragma unroll 1
  for (int begin = rank; begin < elements; begin += kAtOnce * ranks) {
    Element taps[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) taps[i] = tap_of(begin + i * ranks - kTapsFront);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = begin + i * ranks;
      if (at < elements) first[at] = taps[i];
      if (at + 1 < elements) second[at + 1] = taps[i];  // the last is zero, and memory may end after the copy
    }
  }
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
