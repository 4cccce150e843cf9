// Which input, tap and output each register of a warp's tensor-core products is. For the kernels, and for the test that
// runs them on the host (tests/cpp/test_long_filter.cpp).
//
// Eight neighbouring outputs of a row share their window but for a shift: output 8 j + i is row j, column i of X T.
//
//   X[j][m] = x[8 j + m]        windows that overlap; x begins `shift` elements ahead of output 0's first tap
//   T[m][i] = w[m - i - shift]  8 columns; zero beyond the taps
//
// A product has 16 rows and sums over 16 positions m, a step; its 128 outputs are a tile. A group is two tiles, which
// use the same taps. A lane's sums are two neighbours of each part of 64 outputs, so a warp's pairs are 128 bytes of a
// row of half types in the order of its lanes:
//
//   group     | part 0 | part 1 | part 2 | part 3 |     tile 0: parts 0 and 1, tile 1: parts 2 and 3
//               lane 0: outputs 0, 1; lane 1: 2, 3; ... lane 31: 62, 63
//
// Fragment u of X is 8 rows of 16 positions, two registers of a lane: step s of part p has fragment s + 4 p.
#pragma once

#include "kernels/common/int_math.h"

namespace sluice {

inline constexpr int kVectorOutputs = 8;   // 16 bytes of half types: a row of X T
inline constexpr int kStepPositions = 16;  // of one product
inline constexpr int kPartOutputs = 8 * kVectorOutputs;
inline constexpr int kTileOutputs = 2 * kPartOutputs;
inline constexpr int kGroupTiles = 2;
inline constexpr int kGroupParts = 2 * kGroupTiles;
inline constexpr int kGroupOutputs = kGroupTiles * kTileOutputs;
inline constexpr int kLaneSums = kGroupOutputs / 32;  // of a group: four of each tile, a pair of each part

inline constexpr int kFragmentsApart = kPartOutputs / kStepPositions;  // of the same step, from part to part

// Up to so many steps a lane keeps its taps in registers and loads each tile's fragments for themselves. Counted, not
// measured: with more of them, a window of fragments that moves along the row costs shared memory fewer wavefronts
// (8 a step and group, against 2 for the window, 2 for the taps and 24 once).
inline constexpr int kFewSteps = 5;
// Of the window: fragments s to s + 12 are used at step s, and two are loaded at a time.
inline constexpr int kHeldFragments = 16;

// Steps for taps that reach over so many positions: behind the last output of a vector, at the largest shift. Windows
// move by two.
constexpr long long long_filter_steps(long long reach) {
  const long long least = ceil_div<long long>(reach + (kVectorOutputs - 1) + (kVectorOutputs - 1), kStepPositions);
  return least <= kFewSteps ? max_of(least, 2LL) : round_up(least, 2LL);
}
// Where windows begin with a position's channels, and there is no shift.
constexpr long long long_filter_channel_steps(long long reach) {
  return ceil_div<long long>(reach + (kVectorOutputs - 1), kStepPositions);
}

// Outputs that are made together: behind the last one that exists, some more are summed. A power of two.
SLUICE_HOST_DEVICE constexpr int outputs_at_once(bool few_steps) { return few_steps ? kTileOutputs : kGroupOutputs; }

// Positions that so many outputs, of whole tiles or groups, are made of: all have to be there and finite.
SLUICE_HOST_DEVICE constexpr int window_positions(int outputs, int steps) { return outputs + steps * kStepPositions; }

// Four matrices of 8 x 8 elements are loaded at once. The position of the first element of the row that the lane names:
// of a tile's step 0, in the order of a product's registers (rows 0 to 7 and 8 to 15, then both 8 positions on), and of
// fragments 0 and 1. Step s and fragment u are as many steps further on.
SLUICE_HOST_DEVICE constexpr int tile_position(int lane) {
  const int matrix = lane / 8;
  return lane % 8 * kVectorOutputs + matrix % 2 * kPartOutputs + matrix / 2 * 8;
}
SLUICE_HOST_DEVICE constexpr int fragment_position(int lane) { return lane % 8 * kVectorOutputs + lane / 8 * 8; }

// How far behind the first tap of output 0 the lane's element of T stands, for element 0 to 3 of a step.
SLUICE_HOST_DEVICE constexpr int tap_distance(int lane, int step, int element, int shift) {
  return step * kStepPositions + element / 2 * 8 + lane % 4 * 2 + element % 2 - lane / 4 - shift;
}

// In shared memory a row's taps lie twice, the second time an element further on: a lane's pairs of neighbours, which
// begin at an even distance or at an odd one, are words of 32 bits of either copy. So much lies in front of tap 0, for
// distances are -14 at least.
inline constexpr int kTapsFront = 16;
SLUICE_HOST_DEVICE constexpr int tap_copy_elements(int steps) { return kTapsFront + 16 + steps * kStepPositions; }
// From one copy to the other: half of the banks behind whole rounds of them, so that both are read at once.
SLUICE_HOST_DEVICE constexpr int tap_copy_bytes(int steps) {
  return round_up(2 * tap_copy_elements(steps) + 64, 128) - 64;
}
// The lane's elements 0 and 1 of step 0, in bytes from the first copy on; 2 and 3 are 16 further, a step 32.
SLUICE_HOST_DEVICE constexpr int tap_pair_byte(int lane, int shift, int steps) {
  const int distance = tap_distance(lane, 0, 0, shift), odd = distance & 1;
  return odd * tap_copy_bytes(steps) + (distance + kTapsFront + odd) * 2;
}

// Sum `i` of a lane, 0 <= i < kLaneSums, is sum i % 4 of tile i / 4. Which output of the group:
SLUICE_HOST_DEVICE constexpr int sum_output(int lane, int i) { return i / 2 * kPartOutputs + lane * 2 + i % 2; }

// The first of the eight outputs that are a lane's once it has exchanged sums with its three neighbours.
SLUICE_HOST_DEVICE constexpr int vector_output(int lane) { return lane % 4 * kPartOutputs + lane / 4 * kVectorOutputs; }

// Of a stage's words, counted from its first: from `known` on they have something of the row or its history, from `own`
// on whole words of the row, from `own_end` on none of these, and from `known_end` on nothing again.
struct StageWords {
  int known, own, own_end, known_end;
};
// A stage of `words` that begins at position `start` of a row of so many positions, or at an earlier one of its
// history.
SLUICE_HOST_DEVICE constexpr StageWords stage_words(int start, int words, int length, int known_from) {
  const auto within = [&](int word) { return min_of(max_of(word, 0), words); };
  const int known = within((known_from - start) >> 3), own = within((7 - start) >> 3);
  return {known, own, max_of(within((length - start) >> 3), own), max_of(within((length - start + 7) >> 3), own)};
}

// Channels last. A block takes 8 channels a warp, and a warp's words of 8 channels, one a position, lie together; from
// warp to warp so far apart that a position's four words are in different banks. On their way to the products they are
// turned: a channel's positions lie side by side, as in a row, and rows of 8 channels that are read at once or written
// at once begin in different banks.
inline constexpr int kBlockWords = 4;  // of a position
SLUICE_HOST_DEVICE constexpr int word_column_bytes(int positions) { return positions * 16 + 32; }
SLUICE_HOST_DEVICE constexpr int turned_row_bytes(int positions) { return positions * 2 + 16; }
// Matrices of 8 positions by 8 channels are turned as they are loaded. Of a column of words: the lane names a word, and
// gets of channel lane / 4 two positions. Of turned rows: it names 16 bytes of a channel's, and gets of position lane /
// 4 two channels. Matrix m is 8 m positions further.
SLUICE_HOST_DEVICE constexpr int turned_load_byte(int lane) { return lane * 16; }
SLUICE_HOST_DEVICE constexpr int turned_store_byte(int lane, int positions) {
  return lane / 4 * turned_row_bytes(positions) + lane % 4 * 4;
}
SLUICE_HOST_DEVICE constexpr int word_load_byte(int lane, int positions) {
  return lane % 8 * turned_row_bytes(positions) + lane / 8 * 16;
}
SLUICE_HOST_DEVICE constexpr int word_store_byte(int lane) { return lane / 4 * 16 + lane % 4 * 4; }

}  // namespace sluice
