// The runs of a row as a thread finds them. The outputs that look back at a run's history are one thread's for each
// channel, and so is the state that the sequence leaves where it is written in the place of the one before:
//
//   positions   ..a a a a|b b b b b b b|c c..
//   outputs            x x|h h h x x x x|h h      h: by the thread in whose positions the run begins
#pragma once

#include "kernels/causal_conv1d/sequences.h"
#include "kernels/common/element.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/depthwise/arguments.cuh"

namespace sluice {

// How the columns of four neighbouring channels lie, in memory that is read and written in quads.
enum class StateQuads : unsigned char {
  none,     // anyhow, or in another dtype than the input's, or more than kFewTaps of them
  rows,     // the columns of a channel, and the next channel's behind them
  columns,  // the channels of a column
};

template <class Element>
StateQuads state_quads(const Operand<3>& states, long long columns) {
  const long long* const strides = states.strides;
  const bool begins_at_quads =
      reinterpret_cast<std::uintptr_t>(states.data) % (4 * sizeof(Element)) == 0 && strides[0] % 4 == 0;
  if (states.dtype != kDType<Element> || !begins_at_quads || columns > kFewTaps) return StateQuads::none;
  if (strides[1] == columns && strides[2] == 1) return StateQuads::rows;
  return strides[1] == 1 && strides[2] % 4 == 0 ? StateQuads::columns : StateQuads::none;
}

template <class Element>
struct SequencesArguments : Conv1dArguments<Element> {
  static constexpr bool kMayHaveHistory = false;  // in the convolution's own arguments
  Sequences sequences;
  StateQuads before_quads, after_quads;
  int channel_chunks;     // of the blocks behind the tiles' (states.cuh)
  int turns;              // sequences_rows: of a block, with `rows_per_block` channels each
  FastDivisor by_groups;  // sequences_rows: of the blocks that share a tile of an input's row
  bool across;            // the general kernel: neighbouring threads have neighbouring channels, else positions
  int chunks;             // the general kernel: of a row's positions

  __device__ static constexpr DType output_type() { return kDType<Element>; }
};

// The last n with starts[n] <= position: -1 before the first sequence, `count` behind the last one.
template <class Count, class StartOf>
__device__ __forceinline__ Count sequence_at(Count count, long long position, const StartOf& start_of) {
  Count low = -1, high = count + 1;
  while (high - low > 1) {
    const Count middle = (low + high) >> 1;
    if (start_of(middle) <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}
__device__ __forceinline__ long long sequence_at(const Sequences& s, long long position) {
  if (!s.starts.is_wide && s.starts.strides[0] == 1 && s.count < (1LL << 30)) {
    const int* const starts = static_cast<const int*>(s.starts.data);
    return sequence_at<int>(static_cast<int>(s.count), position, [=](int n) { return starts[n]; });
  }
  return sequence_at<long long>(s.count, position, [&s](long long n) { return s.starts.at(n); });
}

// Without positions where the sequence has none.
__device__ __forceinline__ SequenceRun packed_run(const Sequences& s, long long row, long long n, long long length) {
  const long long first = min_of(max_of(s.starts.at(n), 0LL), length);
  return {row, first, max_of(first, min_of(s.starts.at(n + 1), length)), s.slot_of(n), s.has_history(n)};
}

// The run that `position` of a row is in. With ids it may begin before `first` if that is `history` positions back, and
// end behind `last` if that is `limit`.
__device__ __forceinline__ SequenceRun run_at(const Sequences& s, long long row, long long position, long long length,
                                              long long history, long long limit) {
  if (s.is_packed()) {
    const long long n = sequence_at(s, position);
    if (n < 0) return {row, 0, s.starts.at(0), -1, false};
    if (n >= s.count) return {row, position, length, -1, false};
    return packed_run(s, row, n, length);
  }
  SequenceRun run{row, 0, length, s.slot_of(row), s.has_history(row)};
  if (!s.ids.exists()) return run;
  const long long id = s.ids.at(row, position), earliest = max_of(position - history, 0LL);
  run.first = position;
  while (run.first > earliest && s.ids.at(row, run.first - 1) == id) --run.first;
  run.last = position + 1;
  while (run.last < min_of(limit, length) && s.ids.at(row, run.last) == id) ++run.last;
  if (id < 0) run.slot = -1;
  run.has_history &= run.first == 0;
  return run;
}

// The state that a row or a packed sequence leaves, whose first run is `run`.
__device__ __forceinline__ SequenceRun last_run_of(const Sequences& s, const SequenceRun& run, long long length) {
  if (!s.ids.exists() || length == 0) return run;
  SequenceRun last = run;
  last.last = length;
  last.first = max_of(length - 1, 0LL);
  const long long id = s.ids.at(run.row, last.first), earliest = max_of(length - s.columns, 0LL);
  while (last.first > earliest && s.ids.at(run.row, last.first - 1) == id) --last.first;
  last.slot = s.slot_of(run.row);
  last.has_history = last.first == 0 && s.has_history(run.row);
  return last;
}

// A value of the row as the convolution has it: behind `pre`.
template <class Pre, class Element>
__device__ __forceinline__ Element token_at(const Conv1dArguments<Element>& a, long long row, long long channel,
                                            long long position) {
  const auto offset = [&](const long long* strides) {
    return row * strides[0] + channel * strides[1] + position * strides[2];
  };
  const Element token = a.input.template as<const Element>()[offset(a.input.strides)];
  if (Pre{a.pre}.empty()) return token;
  Compute<Element> values[1] = {convert<Compute<Element>>(token)};
  run_chain<Pre, 1, 1>(
      a.pre, [&](const long long* strides, int) { return Place{offset(strides), 0, 0, 1, 0}; }, values);
  return convert<Element>(values[0]);
}

// One of the columns before a run; zero where it has no history.
template <class Element>
__device__ __forceinline__ Compute<Element> history_at(const SequencesArguments<Element>& a, const SequenceRun& run,
                                                       long long channel, long long position) {
  const Sequences& s = a.sequences;
  if (!run.has_history) return Compute<Element>(0);
  const long long column = s.columns + position - run.first;
  return load_as<Compute<Element>>(
      s.before.data, s.before.dtype,
      run.slot * s.before.strides[0] + channel * s.before.strides[1] + column * s.before.strides[2]);
}

// What a thread that has the positions first .. last - 1 of a row computes, run by run:
//
//   zero(from, to)        positions without a sequence
//   sum(run, from, to)    outputs; of a run with a history that begins among the positions, up to the last one that
//   looks
//                         back at it, which other threads leave out
//   keep(last_run)        the state that is this thread's to leave, behind those
template <class Element, class Zero, class Sum, class Keep>
__device__ __forceinline__ void for_runs(const SequencesArguments<Element>& a, long long row, long long first,
                                         long long last, const Zero& zero, const Sum& sum, const Keep& keep) {
  const Sequences& s = a.sequences;
  for (long long t = first; t < last;) {
    const SequenceRun run = run_at(s, row, t, a.length, a.padding, max_of(last, t + a.padding));
    const long long end = min_of(run.last, last), plain = run.first + a.padding;
    const bool begins = run.first == t;
    if (run.slot < 0) {
      zero(t, end);
    } else if (!run.has_history) {
      sum(run, t, end);
    } else if (begins) {
      sum(run, t, max_of(end, min_of(plain, run.last)));
    } else if (max_of(t, plain) < end) {
      sum(run, max_of(t, plain), end);
    }
    // With ids the row's first run is the one whose history stands where the state goes.
    const bool is_first = s.is_packed() ? run.slot >= 0 && begins : t == 0 && s.slot_of(row) >= 0;
    if (is_first && s.moves_in_place()) keep(last_run_of(s, run, a.length));
    t = end;
  }
}

}  // namespace sluice
