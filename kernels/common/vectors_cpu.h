// Vectors of the instruction set that a CPU kernel is compiled for (kernels/common/instruction_set.h), and elements of
// every type as vectors of the type that sums are made in.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "kernels/common/half.h"

namespace sluice {
namespace {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T, int Bytes = kVectorBytes>
struct VectorType {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T, int Bytes = kVectorBytes>
using Vector = typename VectorType<T, Bytes>::type;

// In one vector of sums.
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

#define SLUICE_INLINE inline __attribute__((always_inline))

template <class V>
SLUICE_INLINE V read_vector(const void* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(V));
  return vector;
}

template <class T>
SLUICE_INLINE Vector<T> broadcast(T value) {
  return value - Vector<T>{};  // not a sum: that would make 0 of -0
}

// a * b + sum, rounded once where the instruction set can.
template <class T>
  requires std::is_floating_point_v<T>
SLUICE_INLINE T multiply_add(T a, T b, T sum) {
#if defined(__FMA__)
  if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmaf(a, b, sum);
  } else {
    return __builtin_fma(a, b, sum);
  }
#else
  return a * b + sum;
#endif
}
SLUICE_INLINE Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, sum);
#else
  return a * b + sum;
#endif
}
SLUICE_INLINE Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, sum);
#else
  return a * b + sum;
#endif
}

SLUICE_INLINE Vector<float> load_vector(const float* from) { return read_vector<Vector<float>>(from); }
SLUICE_INLINE Vector<double> load_vector(const double* from) { return read_vector<Vector<double>>(from); }
SLUICE_INLINE Vector<float> load_vector(const BFloat16* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector<float>>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(read_vector<__m256i>(from)), 16));
#elif defined(__AVX2__)
  return reinterpret_cast<Vector<float>>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(read_vector<__m128i>(from)), 16));
#else
  const auto bits = read_vector<Vector<std::uint16_t, kVectorBytes / 2>>(from);
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(bits, Vector<std::uint32_t>) << 16);
#endif
}
SLUICE_INLINE Vector<float> load_vector(const Half* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(read_vector<__m256i>(from));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(read_vector<__m128i>(from));
#else
  Vector<float> vector;
  for (int i = 0; i < kLanes<float>; ++i) vector[i] = to_float(from[i]);
  return vector;
#endif
}

SLUICE_INLINE void store_vector(float* to, Vector<float> value) { __builtin_memcpy(to, &value, sizeof(value)); }
SLUICE_INLINE void store_vector(double* to, Vector<double> value) { __builtin_memcpy(to, &value, sizeof(value)); }
// The upper half of each word is the bfloat16.
SLUICE_INLINE Vector<std::uint32_t> round_to_bfloat16(Vector<float> value) {
  const auto bits = reinterpret_cast<Vector<std::uint32_t>>(value);
  const auto rounded = bits + 0x7fff + ((bits >> 16) & 1);  // to nearest, ties to even
  return value != value ? bits | 0x400000 : rounded;
}

SLUICE_INLINE void store_vector(BFloat16* to, Vector<float> value) {
  const auto words = round_to_bfloat16(value) >> 16;
#if defined(__AVX512F__)
  const __m256i result = _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(words));
#elif defined(__AVX2__)
  const auto halves = reinterpret_cast<__m256i>(words);
  const __m128i result = _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#else
  const auto result = __builtin_convertvector(words, Vector<std::uint16_t, kVectorBytes / 2>);
#endif
  __builtin_memcpy(to, &result, sizeof(result));
}
SLUICE_INLINE void store_vector(Half* to, Vector<float> value) {
#if defined(__AVX512F__)
  const __m256i result = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(to, &result, sizeof(result));
#elif defined(__F16C__)
  const __m128i result = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  __builtin_memcpy(to, &result, sizeof(result));
#else
  for (int i = 0; i < kLanes<float>; ++i) to[i] = to_half(value[i]);
#endif
}

// The first `count` elements, fewer than a vector; zeros behind them.
template <class T, class Element>
SLUICE_INLINE Vector<T> load_part(const Element* from, int count) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Element, double>) {
    return _mm512_maskz_loadu_pd((1u << count) - 1, from);
  } else if constexpr (std::is_same_v<Element, float>) {
    return _mm512_maskz_loadu_ps((1u << count) - 1, from);
  } else {
    Element elements[kLanes<T>];
    _mm256_storeu_epi16(elements, _mm256_maskz_loadu_epi16((1u << count) - 1, from));
    return load_vector(elements);
  }
#else
  Element elements[kLanes<T>] = {};
  for (int i = 0; i < count; ++i) elements[i] = from[i];
  return load_vector(elements);
#endif
}

template <class T, class Element>
SLUICE_INLINE void store_part(Element* to, Vector<T> value, int count) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Element, double>) {
    return _mm512_mask_storeu_pd(to, (1u << count) - 1, value);
  } else if constexpr (std::is_same_v<Element, float>) {
    return _mm512_mask_storeu_ps(to, (1u << count) - 1, value);
  } else {
    Element elements[kLanes<T>];
    store_vector(elements, value);
    return _mm256_mask_storeu_epi16(to, (1u << count) - 1, _mm256_loadu_epi16(elements));
  }
#else
  Element elements[kLanes<T>];
  store_vector(elements, value);
  for (int i = 0; i < count; ++i) to[i] = elements[i];
#endif
}

// Two vectors of neighbours. Those of a bfloat16 tensor come as its even and its odd elements: a shift and a mask make
// them out of words, in half the instructions that vectors in order take. What meets them is put in that order too.
template <class T>
struct Pair {
  Vector<T> first, second;
};

template <class Element>
inline constexpr bool kEvenAndOdd = false;
template <>
inline constexpr bool kEvenAndOdd<BFloat16> = true;

SLUICE_INLINE Pair<float> split_pair(Pair<float> in_order) {
  constexpr int kWidth = kLanes<float>;
  Vector<std::int32_t> even;
  for (int i = 0; i < kWidth; ++i) even[i] = 2 * i;
  return {__builtin_shuffle(in_order.first, in_order.second, even),
          __builtin_shuffle(in_order.first, in_order.second, even + 1)};
}

SLUICE_INLINE Pair<float> join_pair(Pair<float> split) {
  constexpr int kWidth = kLanes<float>;
  Vector<std::int32_t> low;
  for (int i = 0; i < kWidth; ++i) low[i] = i / 2 + i % 2 * kWidth;
  return {__builtin_shuffle(split.first, split.second, low),
          __builtin_shuffle(split.first, split.second, low + kWidth / 2)};
}

template <class T, class Element>
SLUICE_INLINE Pair<T> load_pair(const Element* from) {
  if constexpr (kEvenAndOdd<Element>) {
    const auto words = read_vector<Vector<std::uint32_t>>(from);
    return {reinterpret_cast<Vector<float>>(words << 16), reinterpret_cast<Vector<float>>(words & 0xffff0000u)};
  } else {
    return {load_vector(from), load_vector(from + kLanes<T>)};
  }
}

// Of values that are in the order of pairs of `Element`.
template <class Element, class To, class T>
SLUICE_INLINE void store_pair_like(To* to, Pair<T> pair) {
  if constexpr (kEvenAndOdd<Element> && kEvenAndOdd<To>) {
    const auto words = round_to_bfloat16(pair.first) >> 16 | (round_to_bfloat16(pair.second) & 0xffff0000u);
    __builtin_memcpy(to, &words, sizeof(words));
  } else {
    if constexpr (kEvenAndOdd<Element>) pair = join_pair(pair);
    store_vector(to, pair.first);
    store_vector(to + kLanes<T>, pair.second);
  }
}

}  // namespace
}  // namespace sluice
