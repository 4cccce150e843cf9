// Registers -> global memory: runs of neighbours that begin anywhere, by several lanes.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/common/vector.cuh"

namespace sluice {

// Elements first <= i < last of a word, which begins at an address that is aligned to it, in as few stores as they
// take.
template <class Element>
__device__ __forceinline__ void store_part(char* address, const Word& word, int first, int last) {
  static_assert(sizeof(Element) == 2);
  const auto pair_of = [&word](int i) {
    const std::uint32_t low = i & 2 ? word.lanes[1] : word.lanes[0], high = i & 2 ? word.lanes[3] : word.lanes[2];
    return i & 4 ? high : low;
  };
  int at = first;
  if (at % 2 == 1 && at < last) {
    *reinterpret_cast<std::uint16_t*>(address + 2 * at) = static_cast<std::uint16_t>(pair_of(at) >> 16);
    at += 1;
  }
  if (at % 4 == 2 && at + 2 <= last) {
    *reinterpret_cast<std::uint32_t*>(address + 2 * at) = pair_of(at);
    at += 2;
  }
  if (at + 4 <= last) {
    *reinterpret_cast<uint2*>(address + 2 * at) = make_uint2(pair_of(at), pair_of(at + 2));
    at += 4;
  }
  if (at + 2 <= last) {
    *reinterpret_cast<std::uint32_t*>(address + 2 * at) = pair_of(at);
    at += 2;
  }
  if (at < last) *reinterpret_cast<std::uint16_t*>(address + 2 * at) = static_cast<std::uint16_t>(pair_of(at));
}

// A run of half types to memory where it begins anywhere: each of `lanes` neighbouring lanes holds a word of it, lane
// `lane` the eight elements from 8 `lane` on. In whole words but for those that the run begins and ends in. All of a
// warp call it, each `lanes` lanes with a run of their own.
template <class Element>
__device__ __forceinline__ void store_whole_run(Element* run, const Word& own, int lane, int lanes) {
  Word next;
#pragma unroll
  for (int i = 0; i < 4; ++i) next.lanes[i] = __shfl_down_sync(0xffffffff, own.lanes[i], 1);
  const int before = static_cast<int>(reinterpret_cast<std::uintptr_t>(run) % kWordBytes), after = kWordBytes - before;
  char* const word = reinterpret_cast<char*>(run) + lane * kWordBytes - before;  // that this lane's begins in
  if (before == 0) return store_global_word(word, own);
  if (lane < lanes - 1) store_global_word(word + kWordBytes, shift_words(own, next, after));
  if (lane == 0) store_part<Element>(word, shift_words({}, own, after), before / 2, kWordElements<Element>);
  if (lane == lanes - 1) store_part<Element>(word + kWordBytes, shift_words(own, {}, after), 0, before / 2);
}

// The same of its first `count` elements.
template <int Lanes, class Element>
__device__ __forceinline__ void store_run(Element* run, int count, const Word& own, int lane) {
  constexpr int kElements = kWordElements<Element>;
  if (__all_sync(0xffffffff, count >= Lanes * kElements)) return store_whole_run(run, own, lane, Lanes);
  const int end = count < Lanes * kElements ? count : Lanes * kElements;
  const int begin = lane * kElements;
  // One after another, by the alignment that there is: what a tile's end leaves.
  const int last = end - begin < kElements ? end - begin : kElements;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const std::uint32_t pair = own.lanes[i / 2];
    if (i < last) {
      reinterpret_cast<std::uint16_t*>(run)[begin + i] = static_cast<std::uint16_t>(i % 2 == 0 ? pair : pair >> 16);
    }
  }
}

// Elements first <= i < last of a word, one after another.
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
