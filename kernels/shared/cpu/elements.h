// Elements of any dtype in memory, and values of the sums' type.
#pragma once

#include <type_traits>

#include "kernels/shared/common/operand.h"
#include "kernels/shared/cpu/sum_vectors.h"

namespace sluice {
namespace {

// Whether vectors of T can be loaded from such elements and stored to them.
template <class T, class Element>
inline constexpr bool kHasVectors = std::is_same_v<T, double> == std::is_same_v<Element, double>;

// Whether sums read elements faster in place than from a copy of T.
#if defined(__F16C__)
template <class Element>
inline constexpr bool kReadsDirectly = true;
#else
template <class Element>
inline constexpr bool kReadsDirectly = !std::is_same_v<Element, Half>;
#endif

template <class T>
void fill_zeros(T* to, long long count) {
  for (long long i = 0; i < count; ++i) to[i] = 0;
}

// Calls `body(i, step)` for 0 <= i < count, with the step as a constant if it is a common one.
template <class Body>
SLUICE_HOST_DEVICE void with_steps(long long count, long long step, const Body& body) {
  if (step == 2) {
    for (long long i = 0; i < count; ++i) body(i, 2 * i);
  } else if (step == 3) {
    for (long long i = 0; i < count; ++i) body(i, 3 * i);
  } else {
    for (long long i = 0; i < count; ++i) body(i, step * i);
  }
}

template <class T, class Element>
SLUICE_HOST_DEVICE void load_elements(const Element* from, long long step, long long count, T* to) {
  if (step != 1) {
    with_steps(count, step, [&](long long n, long long place) { to[n] = load_host<T>(from[place]); });
  } else if constexpr (kHasVectors<T, Element>) {
    long long i = 0;
    for (; i + kLanes<T> <= count; i += kLanes<T>) store_vector<T>(to + i, load_vector<T>(from + i));
    const int rest = static_cast<int>(count - i);
    if (rest > 0) store_partial<T>(to + i, load_partial<T>(from + i, rest), rest);
  } else {
    for (long long i = 0; i < count; ++i) to[i] = load_host<T>(from[i]);
  }
}

template <class T, class Element>
SLUICE_HOST_DEVICE void store_elements(Element* to, long long step, long long count, const T* from) {
  if (step != 1) {
    with_steps(count, step, [&](long long n, long long place) { store_host(to[place], from[n]); });
  } else if constexpr (kHasVectors<T, Element>) {
    constexpr int kWidth = kLanes<T>;
    long long i = 0;
    for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
      store_two<T>(to + i, load_vector<T>(from + i), load_vector<T>(from + i + kWidth));
    }
    if (i + kWidth <= count) {
      store_vector<T>(to + i, load_vector<T>(from + i));
      i += kWidth;
    }
    const int rest = static_cast<int>(count - i);
    if (rest > 0) store_partial<T>(to + i, load_partial<T>(from + i, rest), rest);
  } else {
    for (long long i = 0; i < count; ++i) store_host(to[i], from[i]);
  }
}

template <int Rank, class T>
void load_elements(const Operand<Rank>& from, long long offset, long long step, long long count, T* to) {
  with_host_element(from.dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    load_elements<T, Element>(from.template as<Element>() + offset, step, count, to);
  });
}

// `Likely`: the dtype tested first.
template <class Likely, int Rank, class T>
SLUICE_HOST_DEVICE void store_elements(const Operand<Rank>& to, bool likely, long long offset, long long step,
                                       long long count, const T* from) {
  if (likely) return store_elements<T, Likely>(to.template as<Likely>() + offset, step, count, from);
  with_host_element(to.dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    store_elements<T, Element>(to.template as<Element>() + offset, step, count, from);
  });
}

// Contiguous values, rounded to Element if it has fewer digits.
template <class Element, class T>
SLUICE_HOST_DEVICE void round_elements(T* values, long long count) {
  if constexpr (sizeof(Element) < sizeof(T)) {
    constexpr long long kBlock = 256;
    Element rounded[kBlock];
    for (long long i = 0; i < count; i += kBlock) {
      const long long some = min_of(kBlock, count - i);
      store_elements<T, Element>(rounded, 1, some, values + i);
      load_elements<T, Element>(rounded, 1, some, values + i);
    }
  }
}

// Calls `body` for the types of sums and elements: body.operator()<T, Element>().
template <class Body>
void with_sums_of(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::float32: return body.template operator()<float, float>();
    case DType::float16: return body.template operator()<float, Half>();
    case DType::bfloat16: return body.template operator()<float, BFloat16>();
    case DType::float64: return body.template operator()<double, double>();
  }
}

}  // namespace
}  // namespace sluice
