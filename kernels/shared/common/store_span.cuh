// Registers -> global memory: unaligned spans, by several lanes.
#pragma once

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/vector.cuh"

namespace sluice {

// Bytes first <= i < last of a word, in stores of `Unit`, of which all three are multiples.
template <class Unit>
__device__ __forceinline__ void store_units(char* to, const Word& word, int first, int last) {
  constexpr int kUnit = sizeof(Unit);
#pragma unroll
  for (int i = 0; i < kWordBytes; i += kUnit) {
    Unit unit;
    if constexpr (kUnit == 8) {
      unit = make_uint2(word.lanes[i / 4], word.lanes[i / 4 + 1]);
    } else {
      unit = static_cast<Unit>(word.lanes[i / 4] >> i % 4 * 8);
    }
    if (first <= i && i < last) *reinterpret_cast<Unit*>(to + i) = unit;
  }
}

// An unaligned span of half types to memory: each of `lanes` adjacent lanes holds a word of it, lane `lane` the eight
// elements from 8 `lane` on. In whole words except the span's first and last. The whole warp calls it, each `lanes`
// lanes with their own span.
template <class Element>
__device__ __forceinline__ void store_whole_span(Element* span, const Word& own, int lane, int lanes) {
  static_assert(sizeof(Element) == 2);
  Word next;
#pragma unroll
  for (int i = 0; i < 4; ++i) next.lanes[i] = __shfl_down_sync(0xffffffff, own.lanes[i], 1);
  const int before = static_cast<int>(reinterpret_cast<std::uintptr_t>(span) % kWordBytes), after = kWordBytes - before;
  char* const to = reinterpret_cast<char*>(span) + lane * kWordBytes;
  if (before == 0) return store_global_word(to, own);
  if (lane < lanes - 1) store_global_word(to + after, shift_words(own, next, after));
  // The first lane's bytes before the first aligned word, and the last lane's after the last.
  const int first = lane == 0 ? 0 : after, last = lane == lanes - 1 ? kWordBytes : after;
  if (before % 4 != 0) return store_units<std::uint16_t>(to, own, first, last);
  before % 8 != 0 ? store_units<std::uint32_t>(to, own, first, last) : store_units<uint2>(to, own, first, last);
}

// The same of float32, of which a lane holds two words.
__device__ __forceinline__ void store_whole_span(float* span, const Word (&own)[2], int lane, int lanes) {
  constexpr int kElements = kWordElements<float>;
  Word next;
#pragma unroll
  for (int i = 0; i < 4; ++i) next.lanes[i] = __shfl_down_sync(0xffffffff, own[0].lanes[i], 1);
  // Elements before the span's first aligned word.
  const int head = static_cast<int>((0 - reinterpret_cast<std::uintptr_t>(span) / sizeof(float)) % kElements);
  float* const to = span + lane * 2 * kElements;
  const Word first = shift_words(own[0], own[1], head * 4), second = shift_words(own[1], next, head * 4);
  store_global_word(to + head, first);
  if (lane < lanes - 1 || head == 0) store_global_word(to + head + kElements, second);
  if (head == 0) return;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (lane == 0 && i < head) to[i] = __uint_as_float(own[0].lanes[i]);
    if (lane == lanes - 1 && i < kElements - head) to[head + kElements + i] = __uint_as_float(second.lanes[i]);
  }
}

// The same for the span's first `count` elements.
template <int Lanes, class Element>
__device__ __forceinline__ void store_span(Element* span, int count, const Word& own, int lane) {
  constexpr int kElements = kWordElements<Element>;
  if (__all_sync(0xffffffff, count >= Lanes * kElements)) return store_whole_span(span, own, lane, Lanes);
  const int end = count < Lanes * kElements ? count : Lanes * kElements;
  const int begin = lane * kElements;
  // One by one, at the alignment of elements: for the end of a tile.
  const int last = end - begin < kElements ? end - begin : kElements;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uint32_t pair = own.lanes[i / 2];
    if (i < last) {
      reinterpret_cast<std::uint16_t*>(span)[begin + i] = static_cast<std::uint16_t>(i % 2 == 0 ? pair : pair >> 16);
    }
  }
}

// Elements first <= i < last of a word, one by one.
template <class Element>
__device__ __forceinline__ void store_word_elements(Element* to, const Word& word, int first, int last) {
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) {
    const std::uint32_t pair = word.lanes[i / 2];
    if (first <= i && i < last) {
      reinterpret_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(i % 2 == 0 ? pair : pair >> 16);
    }
  }
}

}  // namespace sluice
