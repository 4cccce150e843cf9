// Stores a word of the packed weight in all its parts.
#pragma once

#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/mma/tf32.h"

namespace sluice {

template <class Bits, int Count>
__device__ __forceinline__ Word word_of_bits(const Bits (&values)[Count]) {
  Word word;
  static_assert(sizeof(values) == sizeof(word));
  __builtin_memcpy(&word, values, sizeof(word));
  return word;
}

// `values`: the word's elements as bits, which float32 replaces by their high parts.
template <class Bits, int Count>
__device__ __forceinline__ void store_packed(void* packed, const PackedOrder& order, const PackedWord& at,
                                             Bits (&values)[Count]) {
  char* const to = static_cast<char*>(packed) + at.index(order) * kWordBytes;
  if constexpr (sizeof(Bits) == 4) {
    Bits low[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const SplitFloat split = parts_of_float(values[i], order.parts);
      values[i] = split.high, low[i] = split.low;
    }
    if (order.parts == 2) store_word(to + order.part_words() * kWordBytes, word_of_bits(low));
  }
  store_word(to, word_of_bits(values));
}

}  // namespace sluice
