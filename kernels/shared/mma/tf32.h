// TF32: float32 with 10 bits of fraction instead of 23, which tensor cores multiply.
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

}  // namespace sluice
