// Several convolutions of one input that lie between each other in the result: the output phases of a transposed
// convolution. Each has output channels of its own, so all are one dense convolution with a row for each of them, and
// only the store knows where a row's results go: position q of phase f is result q stride + f step - crop. Phases with
// one tap more than others are a convolution of their own; `first_phase` is the first of a convolution's phases.
//
//   result           rows                                  eight neighbours of the result's memory
//   channels-last    phase, channel rounded up to 8        8 rows of a position: channels of one phase
//   positions        channel, phase (a power of two, step  8 rows of a position: phases of one channel; or of fewer
//                    of 1)                                 phases 4 positions of 2 rows, or 2 of 4
//
// A transposed convolution (kernels/conv_transpose1d) of stride 2 with 4 taps and padding 1, positions side by side:
//
//   position    0   1   2             rows of channel c    2c    phase 0: taps 2 and 0 of inputs q - 1 and q
//   phase       0 1 0 1 0 1                                2c+1  phase 1: taps 3 and 1
//   result    - 0 1 2 3 4 -           crop 1: the first phase of the first position is no result
#pragma once

#include "kernels/common/fast_divide.h"
#include "kernels/common/int_math.h"
#include "kernels/common/operand.h"
#include "kernels/common/qualifiers.h"
#include "kernels/conv1d/dense/pack.h"
#include "kernels/conv1d/dense/policy.h"

namespace sluice {

// Eight neighbours begin at this place of a piece of 16 positions by 32 rows.
struct PieceVector {
  int position, row;
};

// Eight neighbours of the result: they begin at this channel and position, and the elements first <= i < last exist.
struct ResultVector {
  int channel, position, first, last;
};

struct Interleave {
  int phases = 0;                // 0: rows are output channels, and nothing is interleaved
  int first_phase = 0;           // `by_positions`: 0, and `phases` are the stride
  int stride = 1;                // results from a position to the next
  int step = 1, crop = 0;        // results
  int tap_step = 1;              // of the weight, from a phase's tap to its next one
  int channels = 0, length = 0;  // of the result
  bool by_positions = false;     // positions lie side by side in the result's memory, not channels
  int phase_bits = 0;            // by_positions: log2 of `phases`
  FastDivisor by_row_channels = {};

  bool exists() const { return phases > 0; }

  SLUICE_HOST_DEVICE int row_channels() const { return by_positions ? channels : round_up(channels, kRowGroup); }
  long long rows() const { return 1LL * phases * row_channels(); }
  // Of a channel that has a row, or would have.
  SLUICE_HOST_DEVICE long long row(int channel, int phase) const {
    return by_positions ? 1LL * channel * phases + phase : 1LL * phase * row_channels() + channel;
  }

  // The channel that a row is of, or -1 where there is none.
  SLUICE_HOST_DEVICE int channel_of(int row) const {
    const int channel = by_positions ? row >> phase_bits : row - phase_of(row) * row_channels();
    return channel < channels && phase_of(row) < phases ? channel : -1;
  }
  SLUICE_HOST_DEVICE int phase_of(int row) const {
    return by_positions ? row & (phases - 1) : static_cast<int>(by_row_channels.quotient_of_31_bits(row));
  }

  // Of the piece's 64 vectors, in the order in which lanes take them: neighbours of the result's memory are neighbours.
  SLUICE_HOST_DEVICE PieceVector piece_vector(int vector) const {
    if (!by_positions) return {vector / 4, vector % 4 * kPieceElements};
    const int channel = vector >> (phase_bits + 1), element = (vector & (2 * phases - 1)) * kPieceElements;
    return {element >> phase_bits, (channel << phase_bits) + (element & (phases - 1))};
  }
  // Whether a vector's elements are rows of several positions.
  SLUICE_HOST_DEVICE bool has_short_runs() const { return by_positions && phases < kPieceElements; }
  // Where element `i` of a vector is.
  SLUICE_HOST_DEVICE PieceVector element(const PieceVector& vector, int i) const {
    if (!has_short_runs()) return {vector.position, vector.row + i};
    return {vector.position + (i >> phase_bits), vector.row + (i & (phases - 1))};
  }
  // Vectors that are one run of the result's memory, by as many lanes side by side; a power of two.
  SLUICE_HOST_DEVICE int run_lanes() const { return by_positions ? min_of(2 * phases, 32) : 1; }

  SLUICE_HOST_DEVICE ResultVector result_vector(int position, int row) const {
    const int phase = phase_of(row), channel = by_positions ? row >> phase_bits : row - phase * row_channels();
    const int first = position * stride + (first_phase + phase) * step - crop;
    ResultVector vector{.channel = channel, .position = first, .first = 0, .last = 0};
    if (channel >= channels || phase >= phases) return vector;
    if (by_positions) {
      vector.first = max_of(0, -first);
      vector.last = min_of(kPieceElements, length - first);
    } else if (first >= 0 && first < length) {
      vector.last = min_of(kPieceElements, channels - channel);
    }
    return vector;
  }
};

// By-position rows of one piece hold whole channels.
inline constexpr int kMostInterleavedPhases = kDensePiece;

// The weight of a transposed convolution, for its rows: tap j of a phase, as the kernel counts them, is tap
// first_phase + phase + tap_step (taps - 1 - j) of the weight, where `taps` are a phase's. Phases that no tap reaches
// have one of zeros.
struct PhasePackParams {
  Operand<3> weight;         // (output channel, input channel, tap)
  long long input_channels;  // that it has
  int weight_taps;           // likewise; 0 where none reaches the rows' results
  void* packed;              // as PackParams has it
  PackedOrder order;         // of the rows
  Interleave interleave;

  // Taps of all phases: column `later` phases + phase is tap `later` of a phase, counted from the first one.
  int columns_of_channel() const { return order.taps * interleave.phases; }
  // With those that are zeros, whose rows fill up groups.
  int channels() const { return static_cast<int>(order.rows / interleave.phases); }

  // Of the weight; `by_phases` divides by the phases.
  SLUICE_HOST_DEVICE int tap(const FastDivisor& by_phases, int column) const {
    const int later = static_cast<int>(by_phases.quotient_of_31_bits(column));
    return interleave.first_phase + column - later * interleave.phases + later * interleave.tap_step;
  }
  // Where the packed pieces of a column of a channel lie.
  SLUICE_HOST_DEVICE PackedPiece piece(const FastDivisor& by_phases, int channel, int column, int chunk,
                                       int place) const {
    const int later = static_cast<int>(by_phases.quotient_of_31_bits(column));
    return {.chunk = chunk,
            .tap = order.taps - 1 - later,
            .row = interleave.row(channel, column - later * interleave.phases),
            .place = place};
  }
};

}  // namespace sluice
