// IEEE half and bfloat16 as bits, on the host. Written as selects so that loops over them vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/qualifiers.h"

namespace sluice {

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

SLUICE_HOST_DEVICE float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

SLUICE_HOST_DEVICE BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);  // to nearest, ties to even
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded >> 16)};
}

SLUICE_HOST_DEVICE float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  // 2^112 moves half's exponent range to float's, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | (magnitude >= 0x0f800000u ? special : finite));
}

SLUICE_HOST_DEVICE Half to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Below half's smallest normal number an addition to 0.5 rounds at half's last subnormal bit.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return {static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000u ? special : finite))};
}

template <class T>
inline constexpr DType kDTypeOf = sizeof(T) == sizeof(double) ? DType::float64 : DType::float32;  // a compute type's

// Element <-> compute type. A double reaches a half type through float, as in torch.
template <class T>
SLUICE_HOST_DEVICE T load_host(float value) {
  return static_cast<T>(value);
}
template <class T>
SLUICE_HOST_DEVICE T load_host(double value) {
  return static_cast<T>(value);
}
template <class T>
SLUICE_HOST_DEVICE T load_host(Half value) {
  return static_cast<T>(to_float(value));
}
template <class T>
SLUICE_HOST_DEVICE T load_host(BFloat16 value) {
  return static_cast<T>(to_float(value));
}

template <class T>
SLUICE_HOST_DEVICE void store_host(float& to, T value) {
  to = static_cast<float>(value);
}
template <class T>
SLUICE_HOST_DEVICE void store_host(double& to, T value) {
  to = static_cast<double>(value);
}
template <class T>
SLUICE_HOST_DEVICE void store_host(Half& to, T value) {
  to = to_half(static_cast<float>(value));
}
template <class T>
SLUICE_HOST_DEVICE void store_host(BFloat16& to, T value) {
  to = to_bfloat16(static_cast<float>(value));
}

// Calls `body` with a null pointer of the host element type of `dtype`.
template <class Body>
SLUICE_HOST_DEVICE void with_host_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32: body(static_cast<float*>(nullptr)); break;
    case DType::float16: body(static_cast<Half*>(nullptr)); break;
    case DType::bfloat16: body(static_cast<BFloat16*>(nullptr)); break;
    case DType::float64: body(static_cast<double*>(nullptr)); break;
  }
}

}  // namespace sluice
