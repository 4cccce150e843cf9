// Loads at the edges of a tensor: words that are only partly inside, and conditional loads.
#pragma once

#include "kernels/shared/common/vector.cuh"

namespace sluice {

// A word of the elements `element_at(i)`.
template <class Element, class ElementAt>
__device__ __forceinline__ Word gather_elements(const ElementAt& element_at) {
  Element elements[kWordElements<Element>];
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) elements[i] = element_at(i);
  Word word;
  __builtin_memcpy(&word, elements, sizeof(Word));
  return word;
}

// Elements of `changed` where `inside(i)`, else the word's own.
template <class Element, class Inside>
__device__ __forceinline__ Word replace_elements(const Word& word, const Word& changed, const Inside& inside) {
  Element before[kWordElements<Element>], after[kWordElements<Element>];
  __builtin_memcpy(before, &word, sizeof(Word));
  __builtin_memcpy(after, &changed, sizeof(Word));
  return gather_elements<Element>([&](int i) { return inside(i) ? after[i] : before[i]; });
}

// 32-bit lanes of global memory; unchanged if not `exists`. One predicated instruction in program order: the compiler
// would make branches, or wait for the lanes to be cleared. Not ld.global.nc, which may move after later stores.
template <int Lanes>
__device__ __forceinline__ void load_lanes_if(bool exists, const void* at, std::uint32_t (&lanes)[Lanes]) {
  static_assert(Lanes == 1 || Lanes == 2 || Lanes == 4);
  const std::size_t address = __cvta_generic_to_global(at);
  const int is_read = exists;
  if constexpr (Lanes == 4) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0; @p ld.global.v4.b32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(lanes[0]), "+r"(lanes[1]), "+r"(lanes[2]), "+r"(lanes[3])
                 : "l"(address), "r"(is_read));
  } else if constexpr (Lanes == 2) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0; @p ld.global.v2.b32 {%0, %1}, [%2]; }"
                 : "+r"(lanes[0]), "+r"(lanes[1])
                 : "l"(address), "r"(is_read));
  } else {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.b32 %0, [%1]; }"
                 : "+r"(lanes[0])
                 : "l"(address), "r"(is_read));
  }
}

// Stores a word to global memory if `exists`; also one predicated instruction.
__device__ __forceinline__ void store_word_if(bool exists, void* address, const Word& word) {
  const int is_written = exists;
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0; @p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }"
               :
               : "l"(__cvta_generic_to_global(address)), "r"(word.lanes[0]), "r"(word.lanes[1]), "r"(word.lanes[2]),
                 "r"(word.lanes[3]), "r"(is_written)
               : "memory");
}

}  // namespace sluice
