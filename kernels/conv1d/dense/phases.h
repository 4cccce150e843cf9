// The taps of a convolution with a stride, and the rows of a stage that they read.
//
// Output l's tap k reads position l s + k d, counted from the first output's first tap. Positions that leave the same
// remainder by the stride s are s apart in the input and side by side in a stage, so that a tap is again a run of rows,
// one for each output. Taps whose positions leave the same one are a *phase*:
//
//   phase f    taps f, f + p, f + 2 p ..    p = s / gcd(s, d); each d / gcd(s, d) rows behind the one before
//
//   a stage for each phase (what copies whole positions)     all in one stage (what transposes runs of positions)
//
//   stage f   row 0   position f d                           row 0           position 0
//             row 1   position f d + s                       row 1           position s
//              ..                                             ..
//             tap f from row 0 on                            row pitch       position 1
//                                                            row pitch + 1   position 1 + s
//                                                             ..
//                                                            tap f from row (f d mod s) pitch + f d / s on
//
// Either way nothing is fetched twice, and sums go phase by phase. The pitch keeps eight neighbouring positions in
// different banks, as far as that goes: they are 8 / s rows of each of s remainders.
#pragma once

#include <numeric>

#include "kernels/common/fast_divide.h"
#include "kernels/common/int_math.h"

namespace sluice {

inline constexpr int kBankRows = 8;  // neighbouring rows of a swizzled tile, none of which meets another in a bank

struct DensePhases {
  int stride = 1, dilation = 1;
  int phases = 1;
  int tap_step = 1;                // from a tap of a phase to its next one
  int row_step = 1;                // between their first rows
  int least_taps = 1, longer = 0;  // of a phase; the first `longer` phases have one more
  int remainders = 0, pitch = 0;   // in one stage, of so many rows each; 0: a stage for each phase
  FastDivisor by_stride;

  SLUICE_HOST_DEVICE bool are_together() const { return remainders > 0; }
  SLUICE_HOST_DEVICE int stages() const { return are_together() ? 1 : phases; }  // of a chunk of channels
  SLUICE_HOST_DEVICE int taps_of(int phase) const { return least_taps + (phase < longer ? 1 : 0); }
  // Where a stage's rows begin in the padded input, for outputs from `output` on.
  SLUICE_HOST_DEVICE int first_position(int output, int stage) const { return output * stride + stage * dilation; }
  // In one stage: the row of a position behind the first output's first tap, or -1 where there is none.
  SLUICE_HOST_DEVICE int row_of(int position) const {
    const int row = static_cast<int>(by_stride.quotient_of_31_bits(static_cast<std::uint32_t>(max_of(position, 0))));
    const int remainder = position - row * stride;
    return position >= 0 && remainder < remainders && row < pitch ? remainder * pitch + row : -1;
  }
  // Of its stage, where the rows of a phase's first tap begin.
  SLUICE_HOST_DEVICE int first_row(int phase) const { return are_together() ? row_of(phase * dilation) : 0; }
};

// Rows of a remainder for `positions` outputs. In 64 bits: not yet known to fit.
inline long long phase_rows(long long taps, long long stride, long long dilation, long long positions, bool together) {
  if (together) return positions + (taps - 1) * dilation / stride;
  const long long common = std::gcd(stride, dilation);
  return positions + (ceil_div(taps, stride / common) - 1) * (dilation / common);
}

// Remainders in one stage that taps read, and some between where taps are far apart.
inline long long remainders_together(long long taps, long long stride, long long dilation) {
  return dilation == 1 ? min_of(taps, stride) : stride;
}

// From one remainder of a stage to the next.
inline long long remainder_pitch(long long rows, long long stride) {
  const long long wanted = ceil_div<long long>(kBankRows, stride);  // rows of each among eight positions
  return rows + ((wanted - rows) % kBankRows + kBankRows) % kBankRows;
}

// Of a stage for so many outputs.
inline long long stage_rows(long long taps, long long stride, long long dilation, long long positions, bool together) {
  const long long rows = phase_rows(taps, stride, dilation, positions, together);
  return together ? remainders_together(taps, stride, dilation) * remainder_pitch(rows, stride) : rows;
}

// For stages that fit.
inline DensePhases dense_phases(int taps, int stride, int dilation, int positions, bool together) {
  const int common = std::gcd(stride, dilation), tap_step = stride / common;
  DensePhases phases{.stride = stride,
                     .dilation = dilation,
                     .phases = min_of(tap_step, taps),
                     .tap_step = tap_step,
                     .row_step = dilation / common,
                     .least_taps = taps / tap_step,
                     .longer = taps % tap_step,
                     .by_stride = FastDivisor(stride)};
  if (together) {
    phases.remainders = static_cast<int>(remainders_together(taps, stride, dilation));
    phases.pitch = static_cast<int>(remainder_pitch(phase_rows(taps, stride, dilation, positions, together), stride));
  }
  return phases;
}

}  // namespace sluice
