// Shared by all ways to fetch the dense kernel's input.
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/mma/tf32.h"

namespace sluice {

// `pre` on the word of channels of a group from `channel` on, at one position; padding stays zero.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ Word apply_pre(const Arguments& a, int batch, int group_or_split, int channel, int position,
                                          const Word& word) {
  constexpr int kElements = kWordElements<Element>;
  const int left = a.input_channels_of(group_or_split) - channel;
  const int own = a.first_input_channel(group_or_split) + channel;
  if (position < 0 || position >= a.length || left <= 0) return word;
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + own * strides[1] + position * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(kElements, left)};
  };
  float values[kElements];
  unpack<Element>(word, values);
  run_chain<Pre, kElements, 1>(a.pre, place_of, values);
  const Word changed = pack<Element>(values);
  return left >= kElements ? changed : replace_elements<Element>(word, changed, [left](int i) { return i < left; });
}

__device__ __forceinline__ Word rounded_to_tf32(Word word) {
#pragma unroll
  for (int i = 0; i < 4; ++i) word.lanes[i] = round_to_tf32(word.lanes[i]);
  return word;
}

// Stores a word of float32 that is a stage's at shared address `to`: rounded to TF32, which the products would cut, or
// split in its parts.
template <class Arguments>
__device__ __forceinline__ void store_singles(const Arguments& a, std::uint32_t to, const Word& word) {
  if (Arguments::kKeepsSingles && a.parts == 1) return store_shared_word(to, word);
  if (a.parts == 1) return store_shared_word(to, rounded_to_tf32(word));
  Word high, low;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SplitFloat split = split_float(word.lanes[i]);
    high.lanes[i] = split.high, low.lanes[i] = split.low;
  }
  store_shared_word(to, high);
  store_shared_word(to + a.input_part_bytes(), low);
}

// The same in place for `count` words, several at a time to hide the latency.
template <class Arguments, class AddressOf>
__device__ __forceinline__ void convert_singles(const Arguments& a, int count, const AddressOf& address_of) {
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (int first = 0; first < count; first += kAtOnce) {
    Word words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < count) words[i] = load_shared_word(address_of(first + i));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < count) store_singles(a, address_of(first + i), words[i]);
    }
  }
}

// Stores a word at shared address `to` of a stage, with `pre` applied.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void store_staged(const Arguments& a, int batch, int group_or_split, int channel,
                                             int position, std::uint32_t to, const Word& word) {
  const bool has_pre = !Pre{a.pre}.empty();
  const Word own = has_pre ? apply_pre<Pre, Element>(a, batch, group_or_split, channel, position, word) : word;
  sizeof(Element) == 4 ? store_singles(a, to, own) : store_shared_word(to, own);
}

template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void change_in_place(const Arguments& a, int batch, int group_or_split, int channel,
                                                int position, std::uint32_t word) {
  store_staged<Pre, Element>(a, batch, group_or_split, channel, position, word, load_shared_word(word));
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
