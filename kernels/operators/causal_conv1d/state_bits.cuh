// Elements of states, whose dtype is known at run time.
#pragma once

#include <cstdint>

#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/vector.cuh"

namespace sluice {

// The bits of an element, and of a value as an element of a dtype.
__device__ __forceinline__ std::uint64_t load_bits(DType dtype, const void* from, long long offset) {
  switch (size_of(dtype)) {
    case 2: return static_cast<const std::uint16_t*>(from)[offset];
    case 4: return static_cast<const std::uint32_t*>(from)[offset];
    default: return static_cast<const std::uint64_t*>(from)[offset];
  }
}
template <class Value>
__device__ __forceinline__ std::uint64_t bits_as(DType dtype, Value value) {
  std::uint64_t bits = 0;
  with_element_type(dtype, [&](auto* tag) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    const Element element = convert<Element>(value);
    __builtin_memcpy(&bits, &element, sizeof(element));
  });
  return bits;
}
__device__ __forceinline__ void store_bits(DType dtype, void* to, long long offset, std::uint64_t bits) {
  switch (size_of(dtype)) {
    case 2: static_cast<std::uint16_t*>(to)[offset] = static_cast<std::uint16_t>(bits); break;
    case 4: static_cast<std::uint32_t*>(to)[offset] = static_cast<std::uint32_t>(bits); break;
    default: static_cast<std::uint64_t*>(to)[offset] = bits;
  }
}

// The bits of a tensor's element as an element of a dtype.
__device__ __forceinline__ std::uint64_t bits_at(const Operand<3>& from, long long offset, DType as) {
  if (from.dtype == as) return load_bits(as, from.data, offset);
  return bits_as(as, load_as<double>(from.data, from.dtype, offset));
}

}  // namespace sluice
