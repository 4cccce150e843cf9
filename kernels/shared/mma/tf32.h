// TF32: float32 with 10 bits of fraction instead of 23, which tensor cores multiply. They cut the other 13 bits.
//
// Products of float32 are sums of three products of TF32 (Markidis et al. 2018, Ootomo and Yokota 2022):
//
//   x       high + low / kLowScale       `high` is the nearest TF32 number
//   x w     high high + (high low + low high) / kLowScale
#pragma once

#include <cstdint>

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

// The nearest TF32 number as bits of a float32, ties away from zero: cvt.rna.tf32.f32, on the host too.
SLUICE_HOST_DEVICE std::uint32_t round_to_tf32(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  std::uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
#else
  constexpr std::uint32_t kExponent = 0x7f800000, kDropped = 0x1fff, kNan = 0x7fffffff;
  if ((bits & kNan) > kExponent) return kNan;  // as cvt does
  if ((bits & kExponent) == kExponent) return bits;
  return (bits + (kDropped + 1) / 2) & ~kDropped;
#endif
}

// The largest scale with which no low part overflows; it keeps low parts of denormal numbers.
inline constexpr float kLowScale = 2048.0f;

struct SplitFloat {
  std::uint32_t high, low;  // bits of float32; `high` is a TF32 number
};

// The high and the low part of a float32's bits. Infinity is high 1 and low infinity: 1 times the low part of another
// number, which may have the other sign, is finite. `high` of a number that rounds to infinity is the cut number.
SLUICE_HOST_DEVICE SplitFloat split_float(std::uint32_t bits) {
  constexpr std::uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000, kCut = 0xffffe000;
  constexpr std::uint32_t kOneOfInfinity = 0xbf800000;  // the bits that an infinity has in common with 1 of its sign
  std::uint32_t high = round_to_tf32(bits);
  if ((high & kMagnitude) == kInfinity) high = bits & ((bits & kMagnitude) == kInfinity ? kOneOfInfinity : kCut);
  float number, high_number;
  __builtin_memcpy(&number, &bits, sizeof(number));
  __builtin_memcpy(&high_number, &high, sizeof(high_number));
  const float low = (number - high_number) * kLowScale;
  std::uint32_t low_bits;
  __builtin_memcpy(&low_bits, &low, sizeof(low_bits));
  return {high, low_bits};
}

// A float32's bits as `parts` numbers: rounded to TF32, or split.
SLUICE_HOST_DEVICE SplitFloat parts_of_float(std::uint32_t bits, int parts) {
  return parts == 1 ? SplitFloat{round_to_tf32(bits), 0} : split_float(bits);
}

}  // namespace sluice
