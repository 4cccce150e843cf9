// Filters as products with a Toeplitz matrix of their taps, for tensor cores: eight contiguous outputs have the same
// window but for a shift.
//
//   X[j][m] = x[8 j + m]        windows that overlap; x begins `shift` elements before output 0's first tap
//   T[m][i] = w[m - i - shift]  8 columns; zero beyond the taps
//
// A product has 16 rows and sums over 16 positions m, a k-step. For the kernels and for tests on the host.
#pragma once

#include "kernels/shared/common/int_math.h"

namespace sluice {

inline constexpr int kVectorOutputs = 8;   // 16 bytes of half types: a row of X T
inline constexpr int kStepPositions = 16;  // positions of one product

// Distance of the lane's element of T, 0 to 3 of a step, from the first tap of output 0.
SLUICE_HOST_DEVICE constexpr int tap_distance(int lane, int step, int element, int shift) {
  return step * kStepPositions + element / 2 * 8 + lane % 4 * 2 + element % 2 - lane / 4 - shift;
}

// Shared memory holds a row's taps twice, the second time an element further: a lane's pairs of adjacent taps, which
// begin at an even or an odd distance, are aligned 32-bit numbers in one of the copies. kTapsFront elements precede tap
// 0, because distances go down to -14.
inline constexpr int kTapsFront = 16;
SLUICE_HOST_DEVICE constexpr int tap_copy_elements(int steps) { return kTapsFront + 16 + steps * kStepPositions; }
// Bytes from one copy to the other: half of the banks modulo all of them, so that both are read without conflicts.
SLUICE_HOST_DEVICE constexpr int tap_copy_bytes(int steps) {
  return round_up(2 * tap_copy_elements(steps) + 64, 128) - 64;
}
// Byte offset of the lane's elements 0 and 1 of step 0 from the first copy; 2 and 3 are 16 further, a step 32.
SLUICE_HOST_DEVICE constexpr int tap_pair_byte(int lane, int shift, int steps) {
  const int distance = tap_distance(lane, 0, 0, shift), odd = distance & 1;
  return odd * tap_copy_bytes(steps) + (distance + kTapsFront + odd) * 2;
}

}  // namespace sluice
