// The fragment layout: which input, tap and output each register of a warp's tensor-core products holds. For the
// kernels and for the test that runs it on the host (tests/cpp/test_long_filter.cpp).
//
// Output 8 j + i of a row is row j, column i of X T (kernels/shared/mma/toeplitz.h). A product's 128 outputs are a
// tile. A warp tile is two tiles, which use the same taps. A lane's sums are two adjacent outputs of each quarter of 64
// outputs, so a warp's pairs are 128 bytes of a row of half types in the order of its lanes:
//
//   warp tile | quarter 0 | quarter 1 | quarter 2 | quarter 3 |     tile 0: quarters 0 and 1, tile 1: quarters 2 and 3
//               lane 0: outputs 0, 1; lane 1: 2, 3; ... lane 31: 62, 63
//
// Fragment u of X is 8 rows of 16 positions, two registers of a lane: step s of quarter p uses fragment s + 4 p.
#pragma once

#include "kernels/shared/mma/toeplitz.h"

namespace sluice {

inline constexpr int kOutputsPerQuarter = 8 * kVectorOutputs;
inline constexpr int kTileOutputs = 2 * kOutputsPerQuarter;
inline constexpr int kTilesPerWarp = 2;
inline constexpr int kQuartersPerWarp = 2 * kTilesPerWarp;
inline constexpr int kOutputsPerWarp = kTilesPerWarp * kTileOutputs;
inline constexpr int kLaneSums = kOutputsPerWarp / 32;  // sums of a warp tile: four of a tile, a pair of a quarter

inline constexpr int kFragmentsApart = kOutputsPerQuarter / kStepPositions;  // fragments of a step, between quarters

// Up to kFewSteps steps a lane keeps its taps in registers and loads each tile's fragments separately. Counted, not
// measured: with more steps, a window of fragments that moves along the row takes fewer wavefronts of shared memory
// (8 for a step and warp tile, against 2 for the window, 2 for the taps and 24 once).
inline constexpr int kFewSteps = 5;
// The window's size: fragments s to s + 12 are used at step s, and two are loaded at a time.
inline constexpr int kHeldFragments = 16;

// Steps for taps that span `reach` positions, from a vector's last output and at the largest shift. Windows move by
// two.
constexpr long long long_filter_steps(long long reach) {
  const long long least = ceil_div<long long>(reach + (kVectorOutputs - 1) + (kVectorOutputs - 1), kStepPositions);
  return least <= kFewSteps ? max_of(least, 2LL) : round_up(least, 2LL);
}
// The same for channels-last tensors, which need no shift.
constexpr long long long_filter_channel_steps(long long reach) {
  return ceil_div<long long>(reach + (kVectorOutputs - 1), kStepPositions);
}

// Outputs that are summed together, which may exceed the existing outputs. A power of two.
SLUICE_HOST_DEVICE constexpr int outputs_at_once(bool few_steps) { return few_steps ? kTileOutputs : kOutputsPerWarp; }

// Positions that `outputs` of whole tiles are computed from: all must be readable and finite.
SLUICE_HOST_DEVICE constexpr int window_positions(int outputs, int steps) { return outputs + steps * kStepPositions; }

// ldmatrix loads four matrices of 8 x 8 elements. These are the positions of the row that the lane addresses: for a
// tile's step 0, in the order of a product's registers (rows 0 to 7 and 8 to 15, then both 8 positions further), and
// for fragments 0 and 1. Step s and fragment u are s and u steps further.
SLUICE_HOST_DEVICE constexpr int tile_position(int lane) {
  const int matrix = lane / 8;
  return lane % 8 * kVectorOutputs + matrix % 2 * kOutputsPerQuarter + matrix / 2 * 8;
}
SLUICE_HOST_DEVICE constexpr int fragment_position(int lane) { return lane % 8 * kVectorOutputs + lane / 8 * 8; }

// Sum `i` of a lane, 0 <= i < kLaneSums, is sum i % 4 of tile i / 4. Its output in the warp tile:
SLUICE_HOST_DEVICE constexpr int sum_output(int lane, int i) { return i / 2 * kOutputsPerQuarter + lane * 2 + i % 2; }

// The first of a lane's eight outputs after four lanes exchanged their sums.
SLUICE_HOST_DEVICE constexpr int vector_output(int lane) {
  return lane % 4 * kOutputsPerQuarter + lane / 4 * kVectorOutputs;
}

// Word indices in a stage: [known, known_end) contain elements of the row or its history, [own, own_end) are whole
// words of the row.
struct StageWords {
  int known, own, own_end, known_end;
};
// A stage of `words` from position `start` of a row of `length`; history begins at `known_from`.
SLUICE_HOST_DEVICE constexpr StageWords stage_words(int start, int words, int length, int known_from) {
  const auto within = [&](int word) { return min_of(max_of(word, 0), words); };
  const int known = within((known_from - start) >> 3), own = within((7 - start) >> 3);
  return {known, own, max_of(within((length - start) >> 3), own), max_of(within((length - start + 7) >> 3), own)};
}

// Channels-last. A block takes 8 channels a warp. A warp's words of 8 channels, one a position, are contiguous; the
// columns of warps are spaced so that a position's four words are in different banks. They are transposed for the
// products: a channel's positions are contiguous, and rows of 8 channels that are read or written at once begin in
// different banks.
inline constexpr int kBlockWords = 4;  // words of a position
SLUICE_HOST_DEVICE constexpr int word_column_bytes(int positions) { return positions * 16 + 32; }
SLUICE_HOST_DEVICE constexpr int transposed_row_bytes(int positions) { return positions * 2 + 16; }
// ldmatrix.trans transposes matrices of 8 positions by 8 channels. From a column of words: the lane addresses a word
// and gets two positions of channel lane / 4. From transposed rows: it addresses 16 bytes of a channel and gets two
// channels of position lane / 4. Matrix m is 8 m positions further.
SLUICE_HOST_DEVICE constexpr int transposed_load_byte(int lane) { return lane * 16; }
SLUICE_HOST_DEVICE constexpr int transposed_store_byte(int lane, int positions) {
  return lane / 4 * transposed_row_bytes(positions) + lane % 4 * 4;
}
SLUICE_HOST_DEVICE constexpr int word_load_byte(int lane, int positions) {
  return lane % 8 * transposed_row_bytes(positions) + lane / 8 * 16;
}
SLUICE_HOST_DEVICE constexpr int word_store_byte(int lane) { return lane / 4 * 16 + lane % 4 * 4; }

}  // namespace sluice
