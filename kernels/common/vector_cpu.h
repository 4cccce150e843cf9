// Vectors of the instruction set that a source is compiled for, as gcc's vector types. What is computed on them is
// written for one number: a loop over a vector's lanes becomes one instruction for each of the loop's.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/common/half.h"

// Of a lambda whose captures are to stay in registers.
#define SLUICE_IN_PLACE __attribute__((always_inline))

namespace sluice {
namespace {  // a copy for each instruction set (kernels/common/instruction_set.h)

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Vectors that stay in registers from stage to stage: as many as leave half of them free for AVX2, and enough that a
// stage's switch costs less than what it computes.
inline constexpr int kPanelVectors = 8;
template <class T>
inline constexpr int kPanel = kPanelVectors * kLanes<T>;
template <class T>
struct Panel {
  Vector<T> vectors[kPanelVectors];
};

// Calls body(0), body(1), ...: as a loop, even an unrolled one, it would put the panel that it indexes into memory.
template <class Body>
SLUICE_HOST_DEVICE void for_each_vector(const Body& body) {
  [&]<int... j>(std::integer_sequence<int, j...>)
      SLUICE_IN_PLACE { (body(j), ...); }(std::make_integer_sequence<int, kPanelVectors>());
}

// Lane by lane: lanes[i] = body(lanes[i], i). Unrolled ahead of the vectoriser, selects would stay scalar.
template <class T, class Body>
SLUICE_HOST_DEVICE Vector<T> each_lane(Vector<T> vector, const Body& body) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &vector, sizeof(vector));
#pragma GCC unroll 1
  for (int i = 0; i < kLanes<T>; ++i) lanes[i] = body(lanes[i], i);
  std::memcpy(&vector, lanes, sizeof(vector));
  return vector;
}

// Half types <-> float: written out, because gcc splits such loops into narrower vectors.
using Words [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
using HalfWords [[gnu::vector_size(kVectorBytes / 2)]] = std::uint16_t;

SLUICE_HOST_DEVICE Vector<float> to_float(HalfWords bits, BFloat16*) {
#if defined(__AVX512F__)
  return (Vector<float>)((Words)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)bits) << 16);
#elif defined(__AVX2__)
  return (Vector<float>)((Words)_mm256_cvtepu16_epi32((__m128i)bits) << 16);
#else
  return (Vector<float>)(__builtin_convertvector(bits, Words) << 16);
#endif
}

SLUICE_HOST_DEVICE HalfWords from_float(Vector<float> values, BFloat16*) {  // to_bfloat16 of each
  const Words bits = (Words)values, high = bits >> 16;
  const Words rounded = (bits + 0x7fff + (high & 1)) >> 16, words = values == values ? rounded : high | 0x40;
#if defined(__AVX512F__)
  return (HalfWords)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)words);
#elif defined(__AVX2__)
  return (HalfWords)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)words),
                                     _mm256_extracti128_si256((__m256i)words, 1));
#else
  return __builtin_convertvector(words, HalfWords);
#endif
}

SLUICE_HOST_DEVICE Vector<float> to_float(HalfWords bits, Half*) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);  // gcc 12 warns of the plain one
#elif defined(__F16C__)
  return _mm256_cvtph_ps((__m128i)bits);
#else
  float lanes[kLanes<float>];
#pragma GCC unroll 1
  for (int i = 0; i < kLanes<float>; ++i) lanes[i] = to_float(Half{bits[i]});
  Vector<float> values;
  std::memcpy(&values, lanes, sizeof(values));
  return values;
#endif
}

SLUICE_HOST_DEVICE HalfWords from_float(Vector<float> values, Half*) {
#if defined(__AVX512F__)
  return (HalfWords)_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
  return (HalfWords)_mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
#else
  HalfWords bits;
  for (int i = 0; i < kLanes<float>; ++i) bits[i] = to_half(values[i]).bits;
  return bits;
#endif
}

// Elements of any type <-> a vector of the compute type.
template <class T, class Element>
SLUICE_HOST_DEVICE Vector<T> load_vector(const Element* from) {
  if constexpr (std::is_same_v<T, float> && sizeof(Element) == 2) {
    HalfWords bits;
    std::memcpy(&bits, from, sizeof(bits));
    return to_float(bits, static_cast<Element*>(nullptr));
  } else {
    Vector<T> vector;
    T lanes[kLanes<T>];
#pragma GCC unroll 1
    for (int i = 0; i < kLanes<T>; ++i) lanes[i] = load_host<T>(from[i]);
    std::memcpy(&vector, lanes, sizeof(vector));
    return vector;
  }
}

template <class T, class Element>
SLUICE_HOST_DEVICE void store_vector(Element* to, Vector<T> vector) {
  if constexpr (std::is_same_v<T, float> && sizeof(Element) == 2) {
    const HalfWords bits = from_float(vector, to);
    std::memcpy(to, &bits, sizeof(bits));
  } else {
    T lanes[kLanes<T>];
    std::memcpy(lanes, &vector, sizeof(vector));
#pragma GCC unroll 1
    for (int i = 0; i < kLanes<T>; ++i) store_host(to[i], lanes[i]);
  }
}

template <class T>
SLUICE_HOST_DEVICE Panel<T> load_panel(const void* from, DType dtype) {
  Panel<T> panel;
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    const auto* const elements = static_cast<std::remove_reference_t<decltype(tag)>>(const_cast<void*>(from));
    for_each_vector([&](int j) SLUICE_IN_PLACE { panel.vectors[j] = load_vector<T>(elements + j * kLanes<T>); });
  });
  return panel;
}

template <class T>
SLUICE_HOST_DEVICE void store_panel(void* to, DType dtype, const Panel<T>& panel) {
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    auto* const elements = static_cast<std::remove_reference_t<decltype(tag)>>(to);
    for_each_vector([&](int j) SLUICE_IN_PLACE { store_vector<T>(elements + j * kLanes<T>, panel.vectors[j]); });
  });
}

// Past the caches, of which no line is read first. `to` is aligned to a vector; until `finish_streaming` other threads
// may not see it.
SLUICE_HOST_DEVICE void stream_bytes(char* to, const char* from, int bytes) {
#if defined(__AVX512F__)
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
#endif
#if defined(__AVX2__)
  for (; bytes >= 32; bytes -= 32, to += 32, from += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
#elif defined(__x86_64__)
  for (; bytes >= 16; bytes -= 16, to += 16, from += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
#endif
  std::memcpy(to, from, bytes);
}

SLUICE_HOST_DEVICE void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <class T>
SLUICE_HOST_DEVICE void stream_panel(char* to, DType dtype, const Panel<T>& panel) {
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    using Element = std::remove_reference_t<decltype(*tag)>;
    for_each_vector([&](int j) SLUICE_IN_PLACE {
      Element elements[kLanes<T>];
      store_vector<T>(elements, panel.vectors[j]);
      stream_bytes(to + j * sizeof(elements), reinterpret_cast<const char*>(elements), sizeof(elements));
    });
  });
}

}  // namespace
}  // namespace sluice
