// Which input, tap and output each register of a warp's tensor-core products is. For the kernel, and for the test that
// runs them on the host (tests/cpp/test_long_filter.cpp).
//
// Eight neighbouring outputs of a row share their window but for a shift: output 8 j + i is row j, column i of X T.
//
//   X[j][m] = x[8 j + m]        windows that overlap; x begins `shift` elements ahead of output 0's first tap
//   T[m][i] = w[m - i - shift]  8 columns; zero beyond the taps
//
// A product has 16 rows and sums over 16 positions m, a step. A group is two or more tiles of 16 rows, so that the taps
// are loaded once for all. Tile i has the outputs of parts i and kGroupTiles + i, each 64 outputs or 8 rows:
//
//   group     | part 0 | part 1 | part 2 | part 3 |     tile 0: parts 0 and 2, tile 1: parts 1 and 3
//
// So tile i's share of X at step s, four registers that are loaded at once, is tile 0's at step s + 4 i, and each is
// loaded once for all tiles.
#pragma once

#include "kernels/common/int_math.h"

namespace sluice {

inline constexpr int kVectorOutputs = 8;   // 16 bytes of half types: a row of X T
inline constexpr int kStepPositions = 16;  // of one product
inline constexpr int kPartOutputs = 8 * kVectorOutputs;
inline constexpr int kGroupTiles = 2;
inline constexpr int kGroupParts = 2 * kGroupTiles;
inline constexpr int kGroupOutputs = kGroupParts * kPartOutputs;
inline constexpr int kLaneSums = kGroupOutputs / 32;  // of a group
inline constexpr int kLaneVectors = kLaneSums / kVectorOutputs;

// Tile i uses at step s the fragment s + 4 i of X; so many are held, fragment u at place u % kHeldFragments.
inline constexpr int kFragmentsApart = kPartOutputs / kStepPositions;
inline constexpr int kHeldFragments = kGroupTiles * kFragmentsApart;

// Steps for taps that reach over so many positions: behind the last output of a vector, at the largest shift.
constexpr long long long_filter_steps(long long reach) {
  return ceil_div<long long>(reach + (kVectorOutputs - 1) + (kVectorOutputs - 1), kStepPositions);
}

// Positions that `groups` groups multiply with something, be it zero: all have to be there and finite.
SLUICE_HOST_DEVICE constexpr int window_positions(int groups, int steps) {
  return groups * kGroupOutputs + steps * kStepPositions;
}

// Of the four matrices of 8 x 8 elements that fragment 0 of X is, in the order of the registers: the position of the
// first element of the row that the lane names. Fragment u is u steps further on.
SLUICE_HOST_DEVICE constexpr int fragment_position(int lane) {
  const int matrix = lane / 8, half = matrix / 2, is_high = matrix % 2;
  return (lane % 8 + half) * kVectorOutputs + is_high * kGroupTiles * kPartOutputs;
}

// How far behind the first tap of output 0 the lane's element of T stands, for element 0 to 3 of a step.
SLUICE_HOST_DEVICE constexpr int tap_distance(int lane, int step, int element, int shift) {
  return step * kStepPositions + element / 2 * 8 + lane % 4 * 2 + element % 2 - lane / 4 - shift;
}

// Sum `i` of a lane, 0 <= i < kLaneSums: where it is among the four of each tile, and which output of the group.
SLUICE_HOST_DEVICE constexpr int sum_tile(int i) { return i / 2 % kGroupTiles; }
SLUICE_HOST_DEVICE constexpr int sum_register(int i) { return i / 2 / kGroupTiles * 2 + i % 2; }
SLUICE_HOST_DEVICE constexpr int sum_output(int lane, int i) {
  return i / 2 * kPartOutputs + lane / 4 * kVectorOutputs + lane % 4 * 2 + i % 2;
}

// The first of the eight outputs of each vector that is a lane's once it has exchanged sums with its three neighbours.
SLUICE_HOST_DEVICE constexpr int vector_output(int lane, int vector) {
  return (vector * 4 + lane % 4) * kPartOutputs + lane / 4 * kVectorOutputs;
}

}  // namespace sluice
