// causal_conv1d_update: a few new tokens for each of many sequences, whose last columns are in rows of a state.
//
//   row of a sequence        |..........|hhh|      h: the history, `history` columns before the first new token
//   after two tokens         |........hh|htt|      state_at end: the whole row moved left
//
//   circular                 |t....hhhtt|          a token goes to its index modulo the columns, nothing moves
//   front, two accepted      |.hhh......|          the history starts at column accepted - 1
//   after two tokens         |hhtt......|          the history after its first column, then the tokens
#pragma once

#include "kernels/operators/causal_conv1d/indices.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

enum class StateLayout : unsigned char { end, front, circular, accepted };

// The arguments that do not depend on the sums' type.
struct UpdateTensors {
  // (sequence, channel, token). Packed tokens have a sequence stride of 0, and are counted from the first sequence's
  // first.
  Operand<3> input, output;
  Operand<3> state;   // (slot, channel, column)
  Operand<2> weight;  // (channel, tap)
  Operand<1> bias;    // may be absent
  Indices starts;     // starts of packed sequences, then the end of the last sequence; else absent
  Indices slots;      // slots of each sequence, in a row of cache blocks; absent: a sequence's slot is its index
  Indices lengths;    // tokens before the new tokens; circular layout only
  Indices accepted;   // tokens of the row that are accepted
  StateLayout layout;
  long long sequences, channels;
  long long tokens;  // tokens of each sequence; packed: tokens of all sequences
  long long blocks, slot_count, columns;
  long long taps, dilation;
  long long pad_slot, null_slot;  // both mean no slot

  SLUICE_HOST_DEVICE long long history() const { return (taps - 1) * dilation; }
  SLUICE_HOST_DEVICE bool is_packed() const { return starts.exists(); }
};

struct UpdateParams : UpdateTensors {
  Program pre, post;
  Operand<3> pre_operands[kMaxOperands], post_operands[kMaxOperands];
};

// Offsets of one sequence's tokens and columns.
//
//   history    columns (first + j) mod `columns`, j < history(); only circular columns wrap
//   kept       column j takes column j + shift, for j < kept
//   tokens     token t goes to column (target + t) mod `columns`, if `writes(t)`
struct UpdateSequence {
  long long token, count;  // the input's first token, and its tokens
  long long slot;          // slot of the state; -1: none
  long long first, kept, shift, target;
  long long columns, least;  // tokens below `least` are overwritten by later tokens, or older than the row
  bool wraps;

  SLUICE_HOST_DEVICE bool writes(long long t) const { return t >= least && (wraps || target + t < columns); }
  SLUICE_HOST_DEVICE long long column(long long c) const {
    if (!wraps) return c;
    const long long rest = c % columns;
    return rest < 0 ? rest + columns : rest;
  }
};

// The slot in the last cache block of the sequence's row that names one.
SLUICE_HOST_DEVICE long long slot_of(const UpdateTensors& p, long long n) {
  if (!p.slots.exists()) return n;
  for (long long j = p.blocks - 1; j >= 0; --j) {
    const long long slot = p.slots.at(n, j);
    if (slot != p.pad_slot && slot != p.null_slot && slot >= 0 && slot < p.slot_count) return slot;
  }
  return -1;
}

SLUICE_HOST_DEVICE UpdateSequence sequence_of(const UpdateTensors& p, long long n) {
  UpdateSequence s{};
  s.token = p.is_packed() ? min_of(max_of(p.starts.at(n), 0LL), p.tokens) : 0;
  s.count = p.is_packed() ? max_of(min_of(p.starts.at(n + 1), p.tokens) - s.token, 0LL) : p.tokens;
  s.slot = slot_of(p, n);
  const long long history = p.history();
  // The front is a row of `history` columns.
  s.columns = p.layout == StateLayout::front ? history : p.columns;
  switch (p.layout) {
    case StateLayout::end:
    case StateLayout::front:
      s.first = s.columns - history;
      s.kept = max_of(s.columns - s.count, 0LL);
      s.shift = s.count;
      s.target = s.columns - s.count;
      s.least = max_of(s.count - s.columns, 0LL);
      break;
    case StateLayout::circular:
      s.wraps = true;
      s.target = p.lengths.at(n);
      s.first = s.target - history;
      s.least = max_of(s.count - s.columns, 0LL);
      break;
    case StateLayout::accepted:
      s.first = min_of(max_of(p.accepted.at(n), 1LL), s.columns - history + 1) - 1;
      s.kept = max_of(history - 1, 0LL);
      s.shift = s.first + 1;
      s.target = s.kept;
      break;
  }
  return s;
}

// Packed tokens first .. last - 1 of no sequence: before the first sequence (all, if there is none) and after the last
// sequence. The worker of sequence n writes zeros there.
struct TokenRange {
  long long first, last;
};
SLUICE_HOST_DEVICE TokenRange tokens_before(const UpdateTensors& p, long long n) {
  if (!p.is_packed() || n != 0) return {0, 0};
  return {0, p.sequences == 0 ? p.tokens : min_of(max_of(p.starts.at(0), 0LL), p.tokens)};
}
SLUICE_HOST_DEVICE TokenRange tokens_behind(const UpdateTensors& p, long long n) {
  if (!p.is_packed() || n != p.sequences - 1) return {0, 0};
  return {min_of(max_of(p.starts.at(p.sequences), 0LL), p.tokens), p.tokens};
}

// Sequences, and one more row of work for packed tokens without any sequence.
SLUICE_HOST_DEVICE long long rows_of_work(const UpdateTensors& p) {
  return p.is_packed() ? max_of(p.sequences, 1LL) : p.sequences;
}

}  // namespace sluice
