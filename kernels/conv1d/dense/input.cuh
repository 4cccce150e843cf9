// What every way to fetch the input of the dense kernel has in common.
#pragma once

#include "kernels/conv1d/dense/arguments.cuh"

namespace sluice {

// `pre` on pairs of channels; padding stays zero. Pair s is `channels[s]` and the next at `positions[s]`.
template <class Pre, class Element>
__device__ __forceinline__ void apply_pre(const DenseArguments& a, int batch, const int (&channels)[4],
                                          const int (&positions)[4], std::uint32_t (&pairs)[4]) {
  float values[8];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float2 pair = Pair<Element>::load(pairs[s]);
    values[2 * s] = pair.x, values[2 * s + 1] = pair.y;
  }
  const auto existing = [&](int s) {
    return positions[s] >= 0 && positions[s] < a.length ? a.input_channels - channels[s] : 0;
  };
  const auto place_of = [&](const long long* strides, int s) {
    const long long offset = batch * strides[0] + channels[s] * strides[1] + positions[s] * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(2, existing(s))};
  };
  run_chain<Pre, 2, 4>(a.pre, place_of, values);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const std::uint32_t changed = Pair<Element>::store(values[2 * s], values[2 * s + 1]);
    pairs[s] = existing(s) >= 2 ? changed : existing(s) == 1 ? (changed & 0xffff) : pairs[s];
  }
}

// A stage's words are all in shared memory, and the tensor cores may read them: they do so through the unit that bulk
// copies write through.
__device__ __forceinline__ void hand_over(DenseShared& shared, int stage) {
  fence_before_bulk_copy();
  arrive(shared.input_full + stage);
}

// The first `bytes` of 16 from global to shared memory, and zeros, asynchronously.
__device__ __forceinline__ void copy_piece(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

}  // namespace sluice
