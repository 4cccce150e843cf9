// The subsequences of a row as a thread finds them. Outputs that look back at a subsequence's history belong to one
// thread per channel, and so does a final state that overwrites the initial one:
//
//   positions   ..a a a a|b b b b b b b|c c..
//   outputs            x x|h h h x x x x|h h      h: by the thread in whose positions the subsequence begins
#pragma once

#include "kernels/operators/causal_conv1d/sequences.h"
#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/vector.cuh"

namespace sluice {

// Layout of the columns of four adjacent channels, in memory that is read and written in quads.
enum class StateQuads : unsigned char {
  none,     // no quads, another dtype than the input's, or more than kFewTaps columns
  rows,     // the columns of a channel are contiguous, followed by the next channel's
  columns,  // the channels of a column are contiguous
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
struct SequencesArguments : WordsArguments<Element> {
  static constexpr bool kMayHaveHistory = false;  // a history in the convolution's own arguments
  Sequences sequences;
  long long tiles;  // blocks with tiles; the blocks after them keep states
  StateQuads before_quads, after_quads;
  int channel_blocks;             // blocks of channels, of the blocks after the tiles' (states.cuh)
  int iterations;                 // iterations of a block of sequences_rows, `rows_per_block` channels each
  FastDivisor by_channel_blocks;  // sequences_rows: divides by the blocks that share a tile of an input's row
  bool across;                    // the general kernel: adjacent threads have adjacent channels, else positions
  int position_blocks;            // blocks of positions per row, in the general kernel

  __device__ static constexpr DType output_type() { return kDType<Element>; }
};

// The last n with starts[n] <= position: -1 before the first sequence, `count` after the last sequence.
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

// Empty for a sequence without positions.
__device__ __forceinline__ Subsequence packed_subsequence(const Sequences& s, long long row, long long n,
                                                          long long length) {
  const long long first = min_of(max_of(s.starts.at(n), 0LL), length);
  return {row, first, max_of(first, min_of(s.starts.at(n + 1), length)), s.slot_of(n), s.has_history(n)};
}

// Computes end_of_sequences where the last of these ids is negative. Threads of a warp that search the same ids share
// the work, each with some loads in flight: rows may begin or end with thousands of negative ids.
template <class Index>
__device__ __noinline__ long long search_back(const Index* ids, long long stride, long long end) {
  constexpr int kSome = 16;
  const unsigned active = __activemask();
  const unsigned together = __match_any_sync(active, reinterpret_cast<unsigned long long>(ids)) &
                            __match_any_sync(active, static_cast<unsigned long long>(end));
  const int count = __popc(together), own = __popc(together & ((1u << (threadIdx.x & 31)) - 1));
#pragma unroll 1
  for (; end > 0; end -= kSome * count) {
    const int most = static_cast<int>(min_of<long long>(end - 1, kSome * count));
    Index found[kSome];
#pragma unroll
    for (int i = 0; i < kSome; ++i) found[i] = ids[(end - 1 - min_of(own + i * count, most)) * stride];
    int back = kSome * count;
#pragma unroll
    for (int i = 0; i < kSome; ++i) back = found[i] < 0 ? back : min_of(back, min_of(own + i * count, most));
    back = __reduce_min_sync(together, back);
    if (back < kSome * count) return end - back;
  }
  return 0;
}

// The end of the last subsequence among a row's first `end` positions; 0 if there is none.
__device__ __forceinline__ long long end_of_sequences(const Indices& ids, long long row, long long end) {
  if (end == 0 || ids.at(row, end - 1) >= 0) return end;
  const long long from = row * ids.strides[0];
  if (ids.is_wide) return search_back(static_cast<const long long*>(ids.data) + from, ids.strides[1], end);
  return search_back(static_cast<const int*>(ids.data) + from, ids.strides[1], end);
}

// A row whose first and last subsequence are searched if it has ids. sequences_rows has a row that knows them.
struct SearchedRow {
  const Sequences& sequences;
  long long index, length;

  // Whether the subsequence that begins at `first` is the row's first subsequence.
  __device__ __forceinline__ bool begins_at(long long first) const {
    return end_of_sequences(sequences.ids, index, first) == 0;
  }
  // The end of the row's last subsequence; 0 if there is none.
  __device__ __forceinline__ long long end() const { return end_of_sequences(sequences.ids, index, length); }
};

// The subsequence that contains `position` of a row. With ids it may begin before `first` if that is `history`
// positions back, and end after `last` if that is `limit`. It has no history if no output from `position` on reads it.
template <class Row>
__device__ __forceinline__ Subsequence subsequence_at(const Sequences& s, const Row& searched, long long position,
                                                      long long length, long long history, long long limit) {
  const long long row = searched.index;
  if (s.is_packed()) {
    const long long n = sequence_at(s, position);
    if (n < 0) return {row, 0, s.starts.at(0), -1, false};
    if (n >= s.count) return {row, position, length, -1, false};
    return packed_subsequence(s, row, n, length);
  }
  Subsequence subsequence{row, 0, length, s.slot_of(row), s.has_history(row)};
  if (!s.ids.exists()) return subsequence;
  const long long id = s.ids.at(row, position), earliest = max_of(position - history, 0LL);
  subsequence.first = position;
  while (subsequence.first > earliest && s.ids.at(row, subsequence.first - 1) == id) --subsequence.first;
  subsequence.last = position + 1;
  while (subsequence.last < min_of(limit, length) && s.ids.at(row, subsequence.last) == id) ++subsequence.last;
  if (id < 0) subsequence.slot = -1;
  const bool may_look_back = subsequence.has_history && id >= 0 && position - subsequence.first < history;
  subsequence.has_history = may_look_back && searched.begins_at(subsequence.first);
  return subsequence;
}

// Whether a subsequence, whose `first` is exact, is the first of a packed sequence, or of a row, that has a slot.
template <class Row>
__device__ __forceinline__ bool is_first_of_slot(const Sequences& s, const Row& row, const Subsequence& subsequence) {
  if (subsequence.slot < 0 || !s.ids.exists() || subsequence.has_history) return subsequence.slot >= 0;
  return row.begins_at(subsequence.first);
}

// The last subsequence of the row or the packed sequence of `subsequence`: its end is the final state. For a row of
// negative ids it is empty.
template <class Row>
__device__ __forceinline__ Subsequence last_subsequence_of(const Sequences& s, const Row& searched,
                                                           const Subsequence& subsequence) {
  if (!s.ids.exists()) return subsequence;
  const long long row = searched.index;
  Subsequence last{row, 0, searched.end(), s.slot_of(row), s.has_history(row)};
  if (last.last == 0) return last;
  last.first = last.last - 1;
  const long long id = s.ids.at(row, last.first), earliest = max_of(last.last - s.columns, 0LL);
  while (last.first > earliest && s.ids.at(row, last.first - 1) == id) --last.first;
  const bool may_look_back = last.has_history && last.last - last.first < s.columns;
  last.has_history = may_look_back && searched.begins_at(last.first);
  return last;
}

// A value of the row after `pre`, as the convolution reads it.
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

// A column before a subsequence; zero if it has no history.
template <class Element>
__device__ __forceinline__ Compute<Element> history_at(const SequencesArguments<Element>& a,
                                                       const Subsequence& subsequence, long long channel,
                                                       long long position) {
  const Sequences& s = a.sequences;
  if (!subsequence.has_history) return Compute<Element>(0);
  const long long column = s.columns + position - subsequence.first;
  return load_as<Compute<Element>>(
      s.before.data, s.before.dtype,
      subsequence.slot * s.before.strides[0] + channel * s.before.strides[1] + column * s.before.strides[2]);
}

// The work of a thread that has positions first .. last - 1 of a row, subsequence by subsequence:
//
//   zero(from, to)                positions without a sequence
//   sum(subsequence, from, to)    outputs; for a history that begins among the positions, all that look back at it:
//                                 other threads leave them out
//   keep(last_subsequence)        the final state, if it is this thread's, after the others
template <class Element, class Row, class Zero, class Sum, class Keep>
__device__ __forceinline__ void for_subsequences(const SequencesArguments<Element>& a, const Row& row, long long first,
                                                 long long last, const Zero& zero, const Sum& sum, const Keep& keep) {
  const Sequences& s = a.sequences;
  for (long long t = first; t < last;) {
    const Subsequence subsequence = subsequence_at(s, row, t, a.length, a.padding, max_of(last, t + a.padding));
    const long long end = min_of(subsequence.last, last), plain = subsequence.first + a.padding;
    const bool begins = subsequence.first == t;
    if (subsequence.slot < 0) {
      zero(t, end);
    } else if (!subsequence.has_history) {
      sum(subsequence, t, end);
    } else if (begins) {
      sum(subsequence, t, max_of(end, min_of(plain, subsequence.last)));
    } else if (max_of(t, plain) < end) {
      sum(subsequence, max_of(t, plain), end);
    }
    // With ids, the row's first subsequence has its history in the state's memory.
    if (begins && s.moves_in_place() && is_first_of_slot(s, row, subsequence)) {
      keep(last_subsequence_of(s, row, subsequence));
    }
    t = end;
  }
}

}  // namespace sluice
