// Vectors of the source's instruction set, as gcc's vector types. Functions are written for one number: a loop over a
// vector's lanes becomes one vector instruction per operation.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/shared/common/half.h"

// Inlines a lambda, so that its captures stay in registers.
#define SLUICE_IN_PLACE __attribute__((always_inline))

namespace sluice {
namespace {  // a copy for each instruction set (kernels/shared/cpu/instruction_set.h)

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
// The same in unaligned memory. With a memcpy, gcc makes two moves of it for AVX2, whose halves then stall the load of
// the whole.
template <class T>
struct VectorInMemory {
  typedef T type __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
SLUICE_HOST_DEVICE Vector<T> load_lanes(const T* from) {
  return *reinterpret_cast<const typename VectorInMemory<T>::type*>(from);
}
template <class T>
SLUICE_HOST_DEVICE void store_lanes(T* to, Vector<T> vector) {
  *reinterpret_cast<typename VectorInMemory<T>::type*>(to) = vector;
}
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Vectors that stay in registers from stage to stage: they leave half of the registers free for AVX2, and a stage's
// switch costs less than its computation.
inline constexpr int kPanelVectors = 8;
template <class T>
inline constexpr int kPanel = kPanelVectors * kLanes<T>;
template <class T>
struct Panel {
  Vector<T> vectors[kPanelVectors];
};

// Calls body(0), body(1), ..., or body(0), body(2), ...: a loop, even an unrolled one, would put the indexed panel into
// memory.
template <int kStep = 1, class Body>
SLUICE_HOST_DEVICE void for_each_vector(const Body& body) {
  [&]<int... j>(std::integer_sequence<int, j...>)
      SLUICE_IN_PLACE { (body(j * kStep), ...); }(std::make_integer_sequence<int, kPanelVectors / kStep>());
}

// Lane by lane: lanes[i] = body(lanes[i], i). Unrolled before the vectoriser, selects would stay scalar.
template <class T, class Body>
SLUICE_HOST_DEVICE Vector<T> each_lane(Vector<T> vector, const Body& body) {
  alignas(kVectorBytes) T lanes[kLanes<T>];
  store_lanes(lanes, vector);
#pragma GCC unroll 1
  for (int i = 0; i < kLanes<T>; ++i) lanes[i] = body(lanes[i], i);
  return load_lanes(lanes);
}

// Half types <-> float: explicit, because gcc splits such loops into narrower vectors.
using IntVector [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
using HalfPlaces [[gnu::vector_size(kVectorBytes)]] = std::uint16_t;
using HalfWords [[gnu::vector_size(kVectorBytes / 2)]] = std::uint16_t;

SLUICE_HOST_DEVICE Vector<float> to_float(HalfWords bits, BFloat16*) {
#if defined(__AVX512F__)
  return (Vector<float>)((IntVector)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)bits) << 16);
#elif defined(__AVX2__)
  return (Vector<float>)((IntVector)_mm256_cvtepu16_epi32((__m128i)bits) << 16);
#else
  return (Vector<float>)(__builtin_convertvector(bits, IntVector) << 16);
#endif
}

// to_bfloat16 of each lane: the upper half of its 32 bits.
SLUICE_HOST_DEVICE IntVector round_to_bfloat16(Vector<float> values) {
  const IntVector bits = (IntVector)values;
#if defined(__AVX512F__)
  const __m512i words = (__m512i)bits, up = _mm512_add_epi32(words, _mm512_set1_epi32(0x7fff));
  const __mmask16 odd = _mm512_test_epi32_mask(words, _mm512_set1_epi32(0x10000));
  const __m512i rounded = _mm512_mask_add_epi32(up, odd, up, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return (IntVector)_mm512_mask_or_epi32(rounded, nan, words, _mm512_set1_epi32(0x400000));
#else
  const IntVector rounded = bits + 0x7fff + ((bits >> 16) & 1);  // to nearest, ties to even
  return values == values ? rounded : bits | 0x400000;
#endif
}

SLUICE_HOST_DEVICE HalfWords from_float(Vector<float> values, BFloat16*) {
  const IntVector words = round_to_bfloat16(values) >> 16;
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
  return _mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);  // gcc 12 warns of the plain conversion
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
  } else if constexpr (std::is_same_v<T, Element>) {
    return load_lanes(from);
  } else {
    alignas(kVectorBytes) T lanes[kLanes<T>];
#pragma GCC unroll 1
    for (int i = 0; i < kLanes<T>; ++i) lanes[i] = load_host<T>(from[i]);
    return load_lanes(lanes);
  }
}

template <class T, class Element>
SLUICE_HOST_DEVICE void store_vector(Element* to, Vector<T> vector) {
  if constexpr (std::is_same_v<T, float> && sizeof(Element) == 2) {
    const HalfWords bits = from_float(vector, to);
    std::memcpy(to, &bits, sizeof(bits));
  } else if constexpr (std::is_same_v<T, Element>) {
    store_lanes(to, vector);
  } else {
    alignas(kVectorBytes) T lanes[kLanes<T>];
    store_lanes(lanes, vector);
#pragma GCC unroll 1
    for (int i = 0; i < kLanes<T>; ++i) store_host(to[i], lanes[i]);
  }
}

// Two adjacent vectors: for bfloat16 fewer instructions than two single vectors.
template <class T, class Element>
SLUICE_HOST_DEVICE void store_two(Element* to, Vector<T> first, Vector<T> second) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Element, BFloat16> && std::is_same_v<T, float>) {
    const __m512i low = (__m512i)round_to_bfloat16(first), high = (__m512i)round_to_bfloat16(second);
    HalfPlaces upper;
    for (int i = 0; i < 2 * kLanes<T>; ++i) upper[i] = 2 * i + 1;
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low, (__m512i)upper, high));
    return;
  }
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<Element, BFloat16> && std::is_same_v<T, float>) {
    const __m256i low = (__m256i)(round_to_bfloat16(first) >> 16), high = (__m256i)(round_to_bfloat16(second) >> 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
    return;
  }
#endif
  store_vector<T>(to, first);
  store_vector<T>(to + kLanes<T>, second);
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
    for_each_vector<2>(
        [&](int j) SLUICE_IN_PLACE { store_two<T>(elements + j * kLanes<T>, panel.vectors[j], panel.vectors[j + 1]); });
  });
}

// Past the caches, without reading lines first. `to` is aligned to a vector; other threads may not read it until
// `finish_streaming`.
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
    for_each_vector<2>([&](int j) SLUICE_IN_PLACE {
      alignas(kVectorBytes) Element elements[2 * kLanes<T>];
      store_two<T>(elements, panel.vectors[j], panel.vectors[j + 1]);
      stream_bytes(to + j * kLanes<T> * sizeof(Element), reinterpret_cast<const char*>(elements), sizeof(elements));
    });
  });
}

}  // namespace
}  // namespace sluice
