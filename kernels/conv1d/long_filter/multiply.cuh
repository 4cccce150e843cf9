// The sums of a group of tiles, by tensor cores (places.h), and what keeps infinities in their windows.
#pragma once

#include "kernels/conv1d/long_filter/arguments.cuh"
#include "kernels/mma/mma_sync.cuh"

namespace sluice {

__device__ __forceinline__ uint2 load_shared_pair(std::uint32_t from) {
  uint2 pair;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(pair.x), "=r"(pair.y) : "r"(from) : "memory");
  return pair;
}

// Zeros in the place of infinities and NaN.
template <class Element>
__device__ __forceinline__ std::uint32_t finite_or_zero(std::uint32_t pair) {
  constexpr std::uint32_t kExponent = std::is_same_v<Element, __half> ? 0x7c00 : 0x7f80;
  if ((pair & kExponent) == kExponent) pair &= 0xffff0000u;
  if ((pair >> 16 & kExponent) == kExponent) pair &= 0x0000ffffu;
  return pair;
}

__device__ __forceinline__ bool is_finite(float value) { return fabsf(value) <= 3.402823466e38f; }

// sums += X T. `window`: of the row of fragment 0 that the lane names; `taps`: the lane's share of T's first step. Of X
// a window of kHeldFragments fragments is in registers. A step is done with fragment `step`, whose place is taken by
// one that is used four steps later at the earliest.
template <class Element, bool OnlyFinite>
__device__ __forceinline__ void multiply_group(std::uint32_t window, std::uint32_t taps, int steps,
                                               float (&sums)[kGroupTiles][4]) {
  constexpr int kFragmentBytes = kStepPositions * static_cast<int>(sizeof(Element));
  // Cleared, for a register that is not written on every path is nobody else's meanwhile.
  std::uint32_t held[kHeldFragments][4] = {};
  const auto load = [&](int place, int fragment) {
    load_matrices(window + fragment * kFragmentBytes, held[place]);
    if constexpr (OnlyFinite) {
#pragma unroll
      for (int i = 0; i < 4; ++i) held[place][i] = finite_or_zero<Element>(held[place][i]);
    }
  };
#pragma unroll
  for (int s = 0; s < kFragmentsApart; ++s) {
    if (s >= steps) break;
#pragma unroll
    for (int u = s; u < kHeldFragments; u += kFragmentsApart) load(u, u);
  }
  uint2 tap = load_shared_pair(taps);
  for (int first = 0;; first += kHeldFragments) {
#pragma unroll
    for (int s = 0; s < kHeldFragments; ++s) {
      if (first + s >= steps) return;
      const uint2 next = load_shared_pair(taps + (first + s + 1) * kStepBytes);
#pragma unroll
      for (int i = 0; i < kGroupTiles; ++i) {
        multiply_add<Element>(sums[i], held[(s + i * kFragmentsApart) % kHeldFragments], tap);
      }
      if (first + s + kFragmentsApart < steps) load(s, first + s + kHeldFragments);
      tap = next;
    }
  }
}

// The group's sums where some input may be infinite or NaN: T's zeros make NaN of it in up to seven outputs on either
// side whose taps do not reach it. So sums that are not finite are made anew: by the same products without such inputs,
// unless the sum over the output's own window is not finite either. An output depends on nothing but its window, to the
// last bit.
template <class Element>
__device__ __forceinline__ void multiply_within_windows(const LongFilterArguments<Element>& a,
                                                        const Segment<Element>& segment, std::uint32_t group,
                                                        std::uint32_t taps, float bias, int lane,
                                                        float (&sums)[kGroupTiles][4]) {
  float exact[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) sums[sum_tile(i)][sum_register(i)] = exact[i] = bias;
  const std::uint32_t window = group + fragment_position(lane) * sizeof(Element);
  const auto* const x = static_cast<const Element*>(__cvta_shared_to_generic(group)) + segment.shift;
#pragma unroll 1
  for (int k = 0; k < a.taps; ++k) {
    const float tap = a.tap(segment.channel, k);
    const Element* const from = x + k * static_cast<int>(a.dilation);
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      exact[i] = multiply_add(tap, convert<float>(from[sum_output(lane, i)]), exact[i]);
    }
  }
  multiply_group<Element, /*OnlyFinite=*/true>(window, taps, a.steps, sums);
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) {
    float& sum = sums[sum_tile(i)][sum_register(i)];
    sum = is_finite(exact[i]) ? sum : exact[i];
  }
}

}  // namespace sluice
