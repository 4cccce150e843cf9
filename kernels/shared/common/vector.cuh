// Values in registers: element conversion, 16-byte words and their packing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/shared/common/dtype.h"

namespace sluice {

struct alignas(16) Word {
  std::uint32_t lanes[4];
};

// The type in which chains and sums are evaluated.
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
__device__ __forceinline__ __half convert(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 convert(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half convert(double value) {
  return __float2half_rn(static_cast<float>(value));  // through float, as in torch
}
template <>
__device__ __forceinline__ __nv_bfloat16 convert(double value) {
  return __float2bfloat16_rn(static_cast<float>(value));
}
template <>
__device__ __forceinline__ float convert(__half value) {
  return __half2float(value);
}
template <>
__device__ __forceinline__ float convert(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <>
__device__ __forceinline__ double convert(__half value) {
  return __half2float(value);
}
template <>
__device__ __forceinline__ double convert(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

// Calls `body` with a null pointer of the element type of `dtype`.
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

// One rounding, explicitly: -fmad=false keeps the compiler from contracting.
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// Two elements in 32 bits. Half types convert in pairs, one instruction each way: single conversions to bfloat16 run at
// a sixteenth of the rate.
template <class Element>
struct Pair;
template <>
struct Pair<__half> {
  __device__ static float2 load(std::uint32_t bits) {
    __half2 pair;
    __builtin_memcpy(&pair, &bits, 4);
    return __half22float2(pair);
  }
  __device__ static std::uint32_t store(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &pair, 4);
    return bits;
  }
};
template <>
struct Pair<__nv_bfloat16> {
  __device__ static float2 load(std::uint32_t bits) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
  }
  __device__ static std::uint32_t store(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    std::uint32_t bits;
    __builtin_memcpy(&bits, &pair, 4);
    return bits;
  }
};

template <class Element, class T>
__device__ __forceinline__ void unpack(const Word& word, T* values) {
  if constexpr (sizeof(Element) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Pair<Element>::load(word.lanes[i]);
      values[2 * i] = static_cast<T>(pair.x);
      values[2 * i + 1] = static_cast<T>(pair.y);
    }
  } else {
    Element elements[kWordElements<Element>];
    __builtin_memcpy(elements, &word, sizeof(Word));
#pragma unroll
    for (int i = 0; i < kWordElements<Element>; ++i) values[i] = static_cast<T>(elements[i]);
  }
}

// `Count` elements, rounded, as 32-bit lanes.
template <class Element, int Count, class T>
__device__ __forceinline__ void pack(const T* values, std::uint32_t* lanes) {
  if constexpr (sizeof(Element) == 2 && std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) lanes[i] = Pair<Element>::store(values[2 * i], values[2 * i + 1]);
  } else {
    Element elements[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) elements[i] = convert<Element>(values[i]);
    __builtin_memcpy(lanes, elements, sizeof(elements));
  }
}

template <class Element, class T>
__device__ __forceinline__ Word pack(const T* values) {
  Word word;
  pack<Element, kWordElements<Element>>(values, word.lanes);
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

// The address space is explicit: nvJitLink splits a generic store of 16 bytes into four after an inlined chain.
__device__ __forceinline__ void store_global_word(void* address, const Word& word) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(address)), "r"(word.lanes[0]), "r"(word.lanes[1]), "r"(word.lanes[2]),
                 "r"(word.lanes[3])
               : "memory");
}

__device__ __forceinline__ void store_shared_word(std::uint32_t to, const Word& word) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(to), "r"(word.lanes[0]), "r"(word.lanes[1]), "r"(word.lanes[2]), "r"(word.lanes[3])
               : "memory");
}

__device__ __forceinline__ Word load_shared_word(std::uint32_t from) {
  Word word;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.lanes[0]), "=r"(word.lanes[1]), "=r"(word.lanes[2]), "=r"(word.lanes[3])
               : "r"(from)
               : "memory");
  return word;
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
