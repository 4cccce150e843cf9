// Division by a number known at launch: a multiplication and a shift if both fit 31 bits, which is nearly always; else
// a 64-bit division, some hundred instructions on a GPU.
#pragma once

#include <cstdint>

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

struct FastDivisor {
  long long divisor = 1;
  std::uint32_t multiplier = 0;
  std::uint32_t shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(long long value) : divisor(value) {
    // Round-up method: multiplier = ceil(2^(32 + shift) / divisor) - 2^32, exact for dividends below 2^31.
    while (shift < 31 && (1LL << shift) < value) ++shift;
    if (value < (1LL << 31)) {
      const unsigned long long power = 1ULL << shift;
      multiplier = static_cast<std::uint32_t>(
          ((power - static_cast<unsigned long long>(value)) << 32) / static_cast<unsigned long long>(value) + 1);
    }
  }

  // Only for a dividend and a divisor below 2^31: no branch, and no call.
  SLUICE_HOST_DEVICE std::uint32_t quotient_of_31_bits(std::uint32_t dividend) const {
    const std::uint32_t high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(dividend) * multiplier) >> 32);
    return (high + dividend) >> shift;
  }

  // 0 <= dividend.
  SLUICE_HOST_DEVICE long long quotient(long long dividend) const {
    if (((dividend | divisor) >> 31) == 0) {
      return quotient_of_31_bits(static_cast<std::uint32_t>(dividend));
    }
    return dividend / divisor;
  }
};

}  // namespace sluice
