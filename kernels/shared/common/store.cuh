// Registers -> global memory: the store side of every kernel, 16 bytes wide if the address allows it.
#pragma once

#include "kernels/shared/common/vector.cuh"

namespace sluice {

// A whole vector, rounded to Out, to an address aligned to its size or to a word, whichever is less.
template <class Out, int Width, class T>
__device__ __forceinline__ void store_vector(Out* to, const T* values) {
  constexpr int kBytes = Width * static_cast<int>(sizeof(Out));
  std::uint32_t lanes[kBytes / 4];
  pack<Out, Width>(values, lanes);
  if constexpr (kBytes >= kWordBytes) {
#pragma unroll
    for (int w = 0; w < kBytes / kWordBytes; ++w) {
      store_global_word(reinterpret_cast<char*>(to) + w * kWordBytes,
                        Word{{lanes[4 * w], lanes[4 * w + 1], lanes[4 * w + 2], lanes[4 * w + 3]}});
    }
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(lanes[0], lanes[1]);
  } else {
    *reinterpret_cast<std::uint32_t*>(to) = lanes[0];
  }
}

// values[i] to to[i * stride] for first <= i < last, rounded to Out.
template <class Out, int Width, class T>
__device__ __forceinline__ void store_elements(Out* to, long long stride, int first, int last, const T* values) {
  constexpr int kBytes = Width * static_cast<int>(sizeof(Out));
  const bool whole = first == 0 && last == Width && stride == 1;
  if (whole && reinterpret_cast<std::uintptr_t>(to) % (kBytes < kWordBytes ? kBytes : kWordBytes) == 0) {
    store_vector<Out, Width>(to, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    if (first <= i && i < last) to[i * stride] = convert<Out>(values[i]);
  }
}

}  // namespace sluice
