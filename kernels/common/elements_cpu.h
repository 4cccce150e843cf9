// Elements of any dtype in memory, and values of the type that sums are made in.
#pragma once

#include <type_traits>

#include "kernels/common/operand.h"
#include "kernels/common/vectors_cpu.h"

namespace sluice {
namespace {

// Whether vectors of T are loaded from such elements and stored to them.
template <class T, class Element>
inline constexpr bool kHasVectors = std::is_same_v<T, double> == std::is_same_v<Element, double>;

// Whether sums had better read elements as they lie than as a copy of T.
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

// Calls `body(i, step)` for 0 <= i < count with the step as a constant, where it is a common one.
template <class Body>
SLUICE_INLINE void with_steps(long long count, long long step, const Body& body) {
  if (step == 2) {
    for (long long i = 0; i < count; ++i) body(i, 2 * i);
  } else if (step == 3) {
    for (long long i = 0; i < count; ++i) body(i, 3 * i);
  } else {
    for (long long i = 0; i < count; ++i) body(i, step * i);
  }
}

template <int Rank, class T>
void load_elements(const Operand<Rank>& from, long long offset, long long step, long long count, T* to) {
  with_host_element(from.dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    const Element* const elements = from.template as<Element>() + offset;
    long long i = 0;
    if (step == 1) {
      if constexpr (kHasVectors<T, Element>) {
        for (; i + kLanes<T> <= count; i += kLanes<T>) store_vector(to + i, load_vector(elements + i));
      }
      for (; i < count; ++i) to[i] = load_host<T>(elements[i]);
    } else {
      with_steps(count, step, [&](long long n, long long place) { to[n] = load_host<T>(elements[place]); });
    }
  });
}

template <int Rank, class T>
void store_elements(const Operand<Rank>& to, long long offset, long long step, long long count, const T* from) {
  with_host_element(to.dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    Element* const elements = to.template as<Element>() + offset;
    long long i = 0;
    if (step == 1) {
      if constexpr (kHasVectors<T, Element>) {
        for (; i + kLanes<T> <= count; i += kLanes<T>) store_vector(elements + i, load_vector(from + i));
      }
      for (; i < count; ++i) store_host(elements[i], from[i]);
    } else {
      with_steps(count, step, [&](long long n, long long place) { store_host(elements[place], from[n]); });
    }
  });
}

// Calls `body` for the type of the sums and that of the elements, as body.operator()<T, Element>().
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
