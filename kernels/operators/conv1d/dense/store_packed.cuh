// Stores a word of the packed weight, of every part.
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

// `values`: the word's elements as bits, which this changes.
template <class Bits, int Count>
__device__ __forceinline__ void store_packed(void* packed, const PackedOrder& order, const PackedWord& at,
                                             Bits (&values)[Count]) {
  char* const to = static_cast<char*>(packed) + at.index(order) * kWordBytes;
  Bits low[Count];
#pragma unroll
  for (int i = 0; sizeof(Bits) == 4 && i < Count; ++i) {
    const SplitFloat split = split_float(values[i]);
    values[i] = order.parts == 1 ? round_to_tf32(values[i]) : split.high;
    low[i] = split.low;
  }
  store_word(to, word_of_bits(values));
  if (sizeof(Bits) == 4 && order.parts == 2) store_word(to + order.part_words() * kWordBytes, word_of_bits(low));
}

}  // namespace sluice
