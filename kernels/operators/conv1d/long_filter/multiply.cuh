// The sums of a warp tile on tensor cores (fragment_layout.h).
#pragma once

#include "kernels/operators/conv1d/long_filter/fetch.cuh"
#include "kernels/shared/mma/toeplitz.cuh"

namespace sluice {

// sums += X T of a warp tile, or of its first tile, in few steps. `window`: the lane's row of tile 0's first product.
template <class Element, int Tiles>
__device__ __forceinline__ void multiply_few(std::uint32_t window, const uint2 (&taps)[kFewSteps], int steps,
                                             float (&sums)[kTilesPerWarp][4]) {
  constexpr int kTileBytes = kTileOutputs * static_cast<int>(sizeof(Element));
  std::uint32_t rows[2][Tiles][4];
  const auto load = [&](int step) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      load_matrices(window + step * kStepBytes<Element> + i * kTileBytes, rows[step % 2][i]);
    }
  };
  const auto multiply = [&](int step) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) multiply_add<Element>(sums[i], rows[step % 2][i], taps[step]);
  };
  load(0);
  load(1);
  multiply(0);
  multiply(1);
#pragma unroll
  for (int s = 2; s < kFewSteps; ++s) {
    if (s >= steps) return;
    load(s);
    multiply(s);
  }
}

// sums += X T of a warp tile. `window`: the lane's row of fragments 0 and 1; `taps`: its pairs of step 0. Registers
// hold a window of kHeldFragments fragments of X, loaded two at once. The fragments of two steps are dead after both,
// and their registers get fragments that are used four steps later at the earliest.
template <class Element>
__device__ __forceinline__ void multiply_many(std::uint32_t window, std::uint32_t taps, int steps,
                                              float (&sums)[kTilesPerWarp][4]) {
  std::uint32_t held[kHeldFragments / 2][4];
  const auto load = [&](int first, int fragment) {
    load_matrices(window + fragment * kStepBytes<Element>, held[first / 2]);
  };
#pragma unroll
  for (int u = 0; u < kHeldFragments; u += 2) load(u, u);
  uint2 tap = load_shared_pairs(taps);
#pragma unroll 1
  for (;;) {
#pragma unroll
    for (int s = 0; s < kHeldFragments; s += 2) {
#pragma unroll
      for (int i = s; i < s + 2; ++i) {
        const uint2 next = load_shared_pairs(taps + (i + 1) * kStepBytes<Element>);
#pragma unroll
        for (int tile = 0; tile < kTilesPerWarp; ++tile) {
          const int upper = (i + 2 * tile * kFragmentsApart) % kHeldFragments;
          const int lower = (upper + kFragmentsApart) % kHeldFragments, half = i % 2 * 2;
          const std::uint32_t rows[4] = {held[upper / 2][half], held[lower / 2][half], held[upper / 2][half + 1],
                                         held[lower / 2][half + 1]};
          multiply_add<Element>(sums[tile], rows, tap);
        }
        tap = next;
      }
      steps -= 2;
      if (steps == 0) return;
      if (steps > kFragmentsApart - 2) load(s, s + kHeldFragments);
    }
    window += kHeldFragments * kStepBytes<Element>;
    taps += kHeldFragments * kStepBytes<Element>;
  }
}

// sums += X T of a warp tile, or of its first tile, with taps in shared memory and without a moving window.
template <class Element>
__device__ __forceinline__ void multiply_tiles(std::uint32_t window, std::uint32_t taps, int steps, int tiles,
                                               float (&sums)[kTilesPerWarp][4]) {
  constexpr int kTileBytes = kTileOutputs * static_cast<int>(sizeof(Element));
#pragma unroll 1
  for (int s = 0; s < steps; ++s, window += kStepBytes<Element>, taps += kStepBytes<Element>) {
    const uint2 tap = load_shared_pairs(taps);
    std::uint32_t rows[4];
    load_matrices(window, rows);
    multiply_add<Element>(sums[0], rows, tap);
    if (tiles == 1) continue;
    load_matrices(window + kTileBytes, rows);
    multiply_add<Element>(sums[1], rows, tap);
  }
}

// The sums of a warp tile where some input may be infinite or NaN: T's zeros turn it into NaN in up to seven outputs on
// either side whose taps do not reach it. So sums that are not finite are recomputed by the same products without such
// inputs, unless the sum over the output's own window is not finite either. An output depends only on its window, to
// the last bit. `inputs`: shared address at which the `tiles` tiles begin.
template <class Element>
__device__ __forceinline__ void multiply_within_windows(const LongFilterArguments<Element>& a, int channel, int shift,
                                                        std::uint32_t inputs, int tiles, float bias, int lane,
                                                        float (&sums)[kTilesPerWarp][4]) {
  float exact[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) sums[i / 4][i % 4] = exact[i] = bias;
  const auto* const x = static_cast<const Element*>(__cvta_shared_to_generic(inputs)) + shift;
#pragma unroll 1
  for (int k = 0; k < a.taps; ++k) {
    const float tap = a.tap(channel, k);
    const Element* const from = x + k * static_cast<int>(a.dilation);
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      if (i / 4 < tiles) exact[i] = multiply_add(tap, convert<float>(from[sum_output(lane, i)]), exact[i]);
    }
  }
  const Element* const row = taps_of(a, channel);
  const std::uint32_t window = inputs + tile_position(lane) * sizeof(Element);
#pragma unroll 1
  for (int s = 0; s < a.steps; ++s) {
    const uint2 taps = fetch_step(a, row, lane, s, shift);
#pragma unroll
    for (int tile = 0; tile < kTilesPerWarp; ++tile) {
      if (tile >= tiles) break;
      std::uint32_t rows[4];
      load_matrices(window + s * kStepBytes<Element> + tile * kTileOutputs * sizeof(Element), rows);
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[i] = finite_or_zero<Element>(rows[i]);
      multiply_add<Element>(sums[tile], rows, taps);
    }
  }
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) {
    float& sum = sums[i / 4][i % 4];
    sum = is_finite(exact[i]) ? sum : exact[i];
  }
}

}  // namespace sluice
