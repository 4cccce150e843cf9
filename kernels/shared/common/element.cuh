// The element type of a DType, and the DType of an element type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/shared/common/dtype.h"

namespace sluice {

template <class Element>
inline constexpr DType kDType = [] { static_assert(sizeof(Element) == 0, "no dtype has this type"); }();
template <>
inline constexpr DType kDType<float> = DType::float32;
template <>
inline constexpr DType kDType<__half> = DType::float16;
template <>
inline constexpr DType kDType<__nv_bfloat16> = DType::bfloat16;
template <>
inline constexpr DType kDType<double> = DType::float64;

// Calls `body` for the element type of `dtype`: with_element(dtype, [&]<class Element>() { ... }).
template <class Body>
auto with_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float16: return body.template operator()<__half>();
    case DType::bfloat16: return body.template operator()<__nv_bfloat16>();
    case DType::float64: return body.template operator()<double>();
    case DType::float32: break;
  }
  return body.template operator()<float>();
}

}  // namespace sluice
