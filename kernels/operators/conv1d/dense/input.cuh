// Shared by all ways to fetch the dense kernel's input.
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/shared/common/edges.cuh"

namespace sluice {

// `pre` on the eight channels of a group from `channel` on, at one position; padding stays zero.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ Word apply_pre(const Arguments& a, int batch, int group_or_split, int channel, int position,
                                          const Word& word) {
  const int left = a.input_channels_of(group_or_split) - channel;
  const int own = a.first_input_channel(group_or_split) + channel;
  if (position < 0 || position >= a.length || left <= 0) return word;
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + own * strides[1] + position * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(8, left)};
  };
  float values[8];
  unpack<Element>(word, values);
  run_chain<Pre, 8, 1>(a.pre, place_of, values);
  const Word changed = pack<Element>(values);
  return left >= 8 ? changed : replace_elements<Element>(word, changed, [left](int i) { return i < left; });
}

template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void apply_pre_in_place(const Arguments& a, int batch, int group_or_split, int channel,
                                                   int position, std::uint32_t word) {
  store_shared_word(word, apply_pre<Pre, Element>(a, batch, group_or_split, channel, position, load_shared_word(word)));
}

// Marks a stage as filled. The tensor cores read it through the async proxy, hence the fence.
__device__ __forceinline__ void hand_over(DenseShared& shared, int stage) {
  fence_before_bulk_copy();
  arrive(shared.input_full + stage);
}

// 16 bytes from global to shared memory, asynchronously.
__device__ __forceinline__ void copy_swizzled_word(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}
// The same for the first `bytes` of 16; the rest is zeros.
__device__ __forceinline__ void copy_swizzled_word(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

}  // namespace sluice
