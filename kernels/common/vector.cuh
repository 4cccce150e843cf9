// Values in registers: element conversion, 16-byte words and their packing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/dtype.h"

namespace sluice {

inline constexpr int kWordBytes = 16;  // widest global or shared access; tiles move in these

struct alignas(16) Word {
  std::uint32_t lanes[4];
};

// The type that a chain and a sum are evaluated in.
template <class Element>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class Element>
using Compute = typename ComputeOf<Element>::type;

template <class Element>
inline constexpr int kWordElements = kWordBytes / static_cast<int>(sizeof(Element));

template <class To, class From>
__device__ __forceinline__ To convert(From value) {
  return static_cast<To>(value);
}
template <>
__device__ __forceinline__ __half convert(float value) { return __float2half_rn(value); }
template <>
__device__ __forceinline__ __nv_bfloat16 convert(float value) { return __float2bfloat16_rn(value); }
template <>
__device__ __forceinline__ __half convert(double value) { return __double2half(value); }
template <>
__device__ __forceinline__ __nv_bfloat16 convert(double value) { return __double2bfloat16(value); }
template <>
__device__ __forceinline__ float convert(__half value) { return __half2float(value); }
template <>
__device__ __forceinline__ float convert(__nv_bfloat16 value) { return __bfloat162float(value); }
template <>
__device__ __forceinline__ double convert(__half value) { return __half2float(value); }
template <>
__device__ __forceinline__ double convert(__nv_bfloat16 value) { return __bfloat162float(value); }

// Calls `body` with a null pointer of the element type that `dtype` names.
template <class Body>
__device__ __forceinline__ void with_element_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32: body(static_cast<const float*>(nullptr)); break;
    case DType::float16: body(static_cast<const __half*>(nullptr)); break;
    case DType::bfloat16: body(static_cast<const __nv_bfloat16*>(nullptr)); break;
    case DType::float64: body(static_cast<const double*>(nullptr)); break;
  }
}

template <class T>
__device__ __forceinline__ T load_as(const void* data, DType dtype, long long index) {
  T value{};
  with_element_type(dtype, [&](auto* tag) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    value = convert<T>(static_cast<const Element*>(data)[index]);
  });
  return value;
}

template <class Element, class T>
__device__ __forceinline__ void unpack(const Word& word, T* values) {
  Element elements[kWordElements<Element>];
  __builtin_memcpy(elements, &word, sizeof(Word));
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) values[i] = convert<T>(elements[i]);
}

template <class Element, class T>
__device__ __forceinline__ Word pack(const T* values) {
  Element elements[kWordElements<Element>];
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) elements[i] = convert<Element>(values[i]);
  Word word;
  __builtin_memcpy(&word, elements, sizeof(Word));
  return word;
}

__device__ __forceinline__ bool is_word_aligned(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & (kWordBytes - 1)) == 0;
}

__device__ __forceinline__ Word load_word(const void* address) {
  const uint4 bits = *static_cast<const uint4*>(address);
  return Word{{bits.x, bits.y, bits.z, bits.w}};
}

__device__ __forceinline__ void store_word(void* address, const Word& word) {
  *static_cast<uint4*>(address) = make_uint4(word.lanes[0], word.lanes[1], word.lanes[2], word.lanes[3]);
}

// The 16 bytes that start `shift` bytes into the 32 bytes (low, high). 0 <= shift < 16.
__device__ __forceinline__ Word shift_words(const Word& low, const Word& high, int shift) {
  std::uint32_t lanes[8] = {low.lanes[0],  low.lanes[1],  low.lanes[2],  low.lanes[3],
                            high.lanes[0], high.lanes[1], high.lanes[2], high.lanes[3]};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) lanes[i] = lanes[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) lanes[i] = lanes[i + 1];
  }
  const int bits = (shift & 3) * 8;
  Word word;
#pragma unroll
  for (int i = 0; i < 4; ++i) word.lanes[i] = __funnelshift_r(lanes[i], lanes[i + 1], bits);
  return word;
}

}  // namespace sluice
