// Registers -> global memory: the store side of every kernel, 16 bytes wide where the address allows it.
#pragma once

#include "kernels/common/vector.cuh"

namespace sluice {

// values[i] to to[i * stride] for first <= i < last, rounded to Out.
template <class Out, int Width, class T>
__device__ __forceinline__ void store_elements(Out* to, long long stride, int first, int last, const T* values) {
  constexpr int kBytes = Width * static_cast<int>(sizeof(Out));
  const bool whole = first == 0 && last == Width && stride == 1;
  if (whole && reinterpret_cast<std::uintptr_t>(to) % (kBytes < kWordBytes ? kBytes : kWordBytes) == 0) {
    Out elements[Width];
#pragma unroll
    for (int i = 0; i < Width; ++i) elements[i] = convert<Out>(values[i]);
    if constexpr (kBytes >= kWordBytes) {
      Word words[kBytes / kWordBytes];
      __builtin_memcpy(words, elements, kBytes);
#pragma unroll
      for (int w = 0; w < kBytes / kWordBytes; ++w) store_word(reinterpret_cast<char*>(to) + w * kWordBytes, words[w]);
    } else if constexpr (kBytes == 8) {
      std::uint32_t lanes[2];
      __builtin_memcpy(lanes, elements, kBytes);
      *reinterpret_cast<uint2*>(to) = make_uint2(lanes[0], lanes[1]);
    } else {
      std::uint32_t lane;
      __builtin_memcpy(&lane, elements, kBytes);
      *reinterpret_cast<std::uint32_t*>(to) = lane;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    if (first <= i && i < last) to[i * stride] = convert<Out>(values[i]);
  }
}

}  // namespace sluice
