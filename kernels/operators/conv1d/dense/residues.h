// The taps of a convolution with a stride, and the rows of a stage that they read.
//
// Output l's tap k reads position l s + k d, counted from the first output's first tap. Positions of one residue
// modulo the stride s are s apart in the input and adjacent in a stage, so a tap reads consecutive rows, one for each
// output. Taps that read positions of one residue are called by it:
//
//   residue f    taps f, f + p, f + 2 p ..    p = s / gcd(s, d); each d / gcd(s, d) rows after the previous one
//
//   a stage for each residue (copies whole positions)          all in one stage (transposes spans of positions)
//
//   stage f   row 0   position f d                           row 0           position 0
//             row 1   position f d + s                       row 1           position s
//              ..                                             ..
//             tap f from row 0 on                            row pitch       position 1
//                                                            row pitch + 1   position 1 + s
//                                                             ..
//                                                            tap f from row (f d mod s) pitch + f d / s on
//
// Either way nothing is fetched twice, and sums go residue by residue. The pitch keeps eight consecutive positions in
// different banks where it can: they are 8 / s rows of each of s residues.
#pragma once

#include <numeric>

#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

inline constexpr int kBankRows = 8;  // consecutive rows of a swizzled tile, all in different banks

struct TapResidues {
  int stride = 1, dilation = 1;
  int count = 1;
  int tap_step = 1;                    // taps from a residue's tap to its next tap
  int row_step = 1;                    // rows between these taps
  int least_taps = 1, longer = 0;      // taps of a residue; the first `longer` residues have one more
  int staged_residues = 0, pitch = 0;  // residues in one stage, `pitch` rows apart; 0: a stage for each residue
  FastDivisor by_stride;

  SLUICE_HOST_DEVICE bool are_together() const { return staged_residues > 0; }
  SLUICE_HOST_DEVICE int stages() const { return are_together() ? 1 : count; }  // stages of a k-block of channels
  SLUICE_HOST_DEVICE int taps_of(int residue) const { return least_taps + (residue < longer ? 1 : 0); }
  // First position of a stage in the padded input, for outputs from `output` on.
  SLUICE_HOST_DEVICE int first_position(int output, int stage) const { return output * stride + stage * dilation; }
  // The row of a position after the first output's first tap, in one stage of all residues, or -1.
  SLUICE_HOST_DEVICE int row_of(int position) const {
    const int row = static_cast<int>(by_stride.quotient_of_31_bits(static_cast<std::uint32_t>(max_of(position, 0))));
    const int residue = position - row * stride;
    return position >= 0 && residue < staged_residues && row < pitch ? residue * pitch + row : -1;
  }
  // The stage's row from which a residue's first tap reads.
  SLUICE_HOST_DEVICE int first_row(int residue) const { return are_together() ? row_of(residue * dilation) : 0; }
};

// Rows of a residue for `positions` outputs, in 64 bits because they may not fit.
inline long long residue_rows(long long taps, long long stride, long long dilation, long long positions,
                              bool together) {
  if (together) return positions + (taps - 1) * dilation / stride;
  const long long common = std::gcd(stride, dilation);
  return positions + (ceil_div(taps, stride / common) - 1) * (dilation / common);
}

// Residues in one stage: the residues that taps read, and with a dilation all others too.
inline long long staged_residue_count(long long taps, long long stride, long long dilation) {
  return dilation == 1 ? min_of(taps, stride) : stride;
}

// Rows from one residue of a stage to the next.
inline long long residue_pitch(long long rows, long long stride) {
  const long long wanted = ceil_div<long long>(kBankRows, stride);  // rows of a residue among eight positions
  return rows + ((wanted - rows) % kBankRows + kBankRows) % kBankRows;
}

// Rows of a stage for `positions` outputs.
inline long long stage_rows(long long taps, long long stride, long long dilation, long long positions, bool together) {
  const long long rows = residue_rows(taps, stride, dilation, positions, together);
  return together ? staged_residue_count(taps, stride, dilation) * residue_pitch(rows, stride) : rows;
}

// Takes ints: for stages that fit.
inline TapResidues tap_residues(int taps, int stride, int dilation, int positions, bool together) {
  const int common = std::gcd(stride, dilation), tap_step = stride / common;
  TapResidues residues{.stride = stride,
                       .dilation = dilation,
                       .count = min_of(tap_step, taps),
                       .tap_step = tap_step,
                       .row_step = dilation / common,
                       .least_taps = taps / tap_step,
                       .longer = taps % tap_step,
                       .by_stride = FastDivisor(stride)};
  if (together) {
    residues.staged_residues = static_cast<int>(staged_residue_count(taps, stride, dilation));
    residues.pitch = static_cast<int>(residue_pitch(residue_rows(taps, stride, dilation, positions, together), stride));
  }
  return residues;
}

}  // namespace sluice
