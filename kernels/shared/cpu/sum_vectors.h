// Vector operations of sums over taps: products added in one step, partial vectors, and pairs of vectors.
#pragma once

#include <type_traits>

#include "kernels/shared/cpu/vector.h"

namespace sluice {
namespace {

template <class T>
SLUICE_HOST_DEVICE Vector<T> broadcast(T value) {
  return value - Vector<T>{};  // not a sum: that would turn -0 into 0
}

// a * b + sum, rounded once if the instruction set can.
template <class T>
  requires std::is_floating_point_v<T>
SLUICE_HOST_DEVICE T multiply_add(T a, T b, T sum) {
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
SLUICE_HOST_DEVICE Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, sum);
#else
  return a * b + sum;
#endif
}
SLUICE_HOST_DEVICE Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> sum) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, sum);
#else
  return a * b + sum;
#endif
}

// Otherwise the compiler folds the load into each product with the value, and repeats it for every row.
template <class V>
SLUICE_HOST_DEVICE V in_register(V value) {
#if defined(__x86_64__)
  asm("" : "+v"(value));
#endif
  return value;
}

// The first `count` elements, fewer than a vector, then zeros.
template <class T, class Element>
SLUICE_HOST_DEVICE Vector<T> load_partial(const Element* from, int count) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Element, double>) {
    return _mm512_maskz_loadu_pd((1u << count) - 1, from);
  } else if constexpr (std::is_same_v<Element, float>) {
    return _mm512_maskz_loadu_ps((1u << count) - 1, from);
  } else {
    return to_float((HalfWords)_mm256_maskz_loadu_epi16((1u << count) - 1, from), static_cast<Element*>(nullptr));
  }
#else
  Element elements[kLanes<T>] = {};
  for (int i = 0; i < count; ++i) elements[i] = from[i];
  return load_vector<T>(elements);
#endif
}

template <class T, class Element>
SLUICE_HOST_DEVICE void store_partial(Element* to, Vector<T> value, int count) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Element, double>) {
    return _mm512_mask_storeu_pd(to, (1u << count) - 1, value);
  } else if constexpr (std::is_same_v<Element, float>) {
    return _mm512_mask_storeu_ps(to, (1u << count) - 1, value);
  } else {
    return _mm256_mask_storeu_epi16(to, (1u << count) - 1, (__m256i)from_float(value, to));
  }
#else
  Element elements[kLanes<T>];
  store_vector<T>(elements, value);
  for (int i = 0; i < count; ++i) to[i] = elements[i];
#endif
}

// Two adjacent vectors. In a bfloat16 tensor they are its even and its odd elements: a shift and a mask extract them
// from words, in half the instructions of vectors in order. Weights and biases are put in this order too.
template <class T>
struct Pair {
  Vector<T> first, second;
};

template <class Element>
inline constexpr bool kEvenAndOdd = false;
template <>
inline constexpr bool kEvenAndOdd<BFloat16> = true;

SLUICE_HOST_DEVICE Pair<float> split_pair(Pair<float> in_order) {
  constexpr int kWidth = kLanes<float>;
  Vector<std::int32_t> even;
  for (int i = 0; i < kWidth; ++i) even[i] = 2 * i;
  return {__builtin_shuffle(in_order.first, in_order.second, even),
          __builtin_shuffle(in_order.first, in_order.second, even + 1)};
}

SLUICE_HOST_DEVICE Pair<float> join_pair(Pair<float> split) {
  constexpr int kWidth = kLanes<float>;
  Vector<std::int32_t> low;
  for (int i = 0; i < kWidth; ++i) low[i] = i / 2 + i % 2 * kWidth;
  return {__builtin_shuffle(split.first, split.second, low),
          __builtin_shuffle(split.first, split.second, low + kWidth / 2)};
}

template <class T, class Element>
SLUICE_HOST_DEVICE Pair<T> load_pair(const Element* from) {
  if constexpr (kEvenAndOdd<Element>) {
    IntVector words;
    std::memcpy(&words, from, sizeof(words));
    return {reinterpret_cast<Vector<float>>(words << 16), reinterpret_cast<Vector<float>>(words & 0xffff0000u)};
  } else {
    return {load_vector<T>(from), load_vector<T>(from + kLanes<T>)};
  }
}

// Stores values that are in the order of pairs of `Element`.
template <class Element, class To, class T>
SLUICE_HOST_DEVICE void store_pair_like(To* to, Pair<T> pair) {
  if constexpr (kEvenAndOdd<Element> && kEvenAndOdd<To>) {
    const auto words = round_to_bfloat16(pair.first) >> 16 | (round_to_bfloat16(pair.second) & 0xffff0000u);
    std::memcpy(to, &words, sizeof(words));
  } else {
    if constexpr (kEvenAndOdd<Element>) pair = join_pair(pair);
    store_two<T>(to, pair.first, pair.second);
  }
}

}  // namespace
}  // namespace sluice
