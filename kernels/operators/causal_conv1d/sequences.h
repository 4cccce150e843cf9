// causal_conv1d of sequences that begin and end anywhere in the rows of its input, each with a state.
//
//   rows      |aaaaaaaaaaaaaaaa|     a row is a sequence
//             |bbbbbbbbbbbbbbbb|
//   packed    |aaaabbbbbbbbcdd.|     one row: sequence n starts at starts[n]
//   by ids    |..aabbb...bbdd..|     a change of id begins another subsequence; at a negative id (.) there is none
//
// A subsequence's first outputs look back at its history, the last columns of its sequence's state, or at zeros. With
// ids a row's first subsequence (aa) reads this state, and its last one (dd) leaves the final state, however many
// negative ids there are before or after it. A row of negative ids is a sequence without positions.
//
//   before    |....hhh|                       h: the history, (taps - 1) * dilation columns
//   after     the last `columns` of (before, the sequence's positions)
#pragma once

#include "kernels/operators/causal_conv1d/indices.h"
#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

struct Sequences {
  Indices starts;                             // starts of packed sequences, then the last sequence's end; else absent
  Indices ids;                                // ids (row, position), negative without a sequence; else absent
  Indices slots;                              // cache slots of the sequences; absent: a sequence's slot is its index
  Flags continues;                            // whether a sequence has a history; absent: all do
  long long count;                            // packed sequences, or rows
  long long slot_count, pad_slot, null_slot;  // the latter two mean no slot
  Operand<3> before;                          // initial states (slot, channel, column); absent: zeros
  Operand<3> after;                           // final states; absent: not computed; may be `before`
  long long columns;                          // columns of both states

  SLUICE_HOST_DEVICE bool is_packed() const { return starts.exists(); }
  // In place: a row is read before it is written.
  SLUICE_HOST_DEVICE bool moves_in_place() const { return after.exists() && before.data == after.data; }
  // -1 for none: the sequence's results are 0, and no state is read or written.
  SLUICE_HOST_DEVICE long long slot_of(long long n) const {
    const long long slot = slots.exists() ? slots.at(n) : n;
    const bool names_one = slot >= 0 && slot < slot_count && slot != pad_slot && slot != null_slot;
    return !slots.exists() || names_one ? slot : -1;
  }
  SLUICE_HOST_DEVICE bool has_history(long long n) const {
    return before.exists() && (!continues.exists() || continues.at(n));
  }
};

// `convolution.history` is absent, and its padding is the history's length.
struct SequencesParams {
  Conv1dParams convolution;
  Sequences sequences;

  SLUICE_HOST_DEVICE long long history() const { return convolution.padding; }
};

// Positions first .. last - 1 of a row.
struct Subsequence {
  long long row, first, last;
  long long slot;    // slot of its sequence; -1: all results are 0
  bool has_history;  // its slot has a history
};

}  // namespace sluice
