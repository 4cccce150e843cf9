// Fetches a segment's input to shared memory, and its taps to shared memory or registers.
#pragma once

#include "kernels/operators/conv1d/long_filter/arguments.cuh"
#include "kernels/shared/mma/toeplitz.cuh"
#include "kernels/shared/pipeline/copy_groups.cuh"

namespace sluice {

// Copies contiguous words of the row.
template <class Element, bool FewSteps>
__device__ __forceinline__ void copy_words(const Element* from, std::uint32_t to, int words,
                                           const Team<FewSteps>& team) {
  constexpr int kWidth = kWordElements<Element>, kAtOnce = FewSteps ? 4 : 1;
  const int ranks = team.ranks();
  from += team.rank() * kWidth;
  to += team.rank() * kWordBytes;
#pragma unroll 1
  for (; words >= kAtOnce * ranks; words -= kAtOnce * ranks) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) copy_word(to + i * ranks * kWordBytes, from + i * ranks * kWidth);
    from += kAtOnce * ranks * kWidth;
    to += kAtOnce * ranks * kWordBytes;
  }
  if constexpr (kAtOnce > 1) {
#pragma unroll 1
    for (; words >= ranks; words -= ranks, from += ranks * kWidth, to += ranks * kWordBytes) copy_word(to, from);
  }
  if (team.rank() < words) copy_word(to, from);
}

// A stage that exceeds its row. Words of the row are copied, words outside of the row and its history are zeros, and
// the others, of history or across an end of the row, are gathered by elements.
template <class Element, bool FewSteps>
__device__ __forceinline__ void fetch_edges(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                            std::uint32_t stage, int words, const Team<FewSteps>& team) {
  constexpr int kWidth = kWordElements<Element>;
  static_assert(kWidth == 8);
  const int length = static_cast<int>(a.length), start = segment.start(a);
  const int rank = team.rank(), ranks = team.ranks();
  const int known_from = a.history.exists() ? -static_cast<int>(a.padding) : 0;
  const StageWords of = stage_words(start, words, length, known_from);
  copy_words(segment.input + (start + of.own * kWidth), stage + of.own * kWordBytes, of.own_end - of.own, team);
  const int zeros = of.known + words - of.known_end;
#pragma unroll 1
  for (int i = rank; i < zeros; i += ranks) {
    store_shared_word(stage + (i < of.known ? i : i - of.known + of.known_end) * kWordBytes, Word{});
  }
  const int before = (of.own - of.known) * kWidth, elements = before + (of.known_end - of.own_end) * kWidth;
  auto* const to = static_cast<Element*>(__cvta_shared_to_generic(stage));
#pragma unroll 1
  for (int i = rank; i < elements; i += ranks) {
    const int at = i < before ? of.known * kWidth + i : of.own_end * kWidth + i - before;
    const int position = start + at;
    if (static_cast<unsigned>(position) < static_cast<unsigned>(length)) {
      to[at] = segment.input[position];
    } else {
      to[at] = element_at(a, segment.batch, segment.input_channel(a), position);  // history, or zero
    }
  }
}

template <class Element, bool FewSteps>
__device__ __forceinline__ void fetch_segment(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                              std::uint32_t stage, const Team<FewSteps>& team) {
  const int words = segment.template words<FewSteps>(a), start = segment.start(a);
  if (start >= 0 && start + words * kWordElements<Element> <= static_cast<int>(a.length)) {
    copy_words(segment.input + start, stage, words, team);
  } else {
    fetch_edges(a, segment, stage, words, team);
  }
}

// Applies `pre` to the words that contain input.
template <class Pre, class Element, bool FewSteps>
__device__ __forceinline__ void prepare_segment(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                                std::uint32_t stage, const Team<FewSteps>& team) {
  constexpr int kWidth = kWordElements<Element>;
  const int words = segment.template words<FewSteps>(a), start = segment.start(a), length = static_cast<int>(a.length);
#pragma unroll 1
  for (int w = team.rank(); w < words; w += team.ranks()) {
    const int position = start + w * kWidth;
    if (position + kWidth <= 0 || position >= length) continue;
    const std::uint32_t at = stage + w * kWordBytes;
    const Word word = load_shared_word(at);
    store_shared_word(at, apply_pre<Pre>(a, word, segment.batch, segment.input_channel(a), position, 0, 1));
  }
}

// The tap `distance` positions after a window's first, or zero where there is none.
template <class Element>
__device__ __forceinline__ Element tap_at(const LongFilterArguments<Element>& a, const Element* row, int distance) {
  int k = distance;
  bool is_tap = true;
  if (a.dilation != 1) {
    k = static_cast<int>(a.by_dilation.quotient_of_31_bits(static_cast<unsigned>(max_of(distance, 0))));
    is_tap = distance >= 0 && k * static_cast<int>(a.dilation) == distance;
  }
  is_tap = is_tap && static_cast<unsigned>(k) < static_cast<unsigned>(a.taps);
  return is_tap ? row[k * a.weight.strides[1]] : convert<Element>(0.0f);
}

template <class Element>
__device__ __forceinline__ const Element* taps_of(const LongFilterArguments<Element>& a, int channel) {
  return a.weight.template as<const Element>() + channel * a.weight.strides[0];
}

// The lane's share of a step of T. Out of line: channels change rarely.
template <class Element>
__device__ __noinline__ uint2 fetch_step(const LongFilterArguments<Element>& a, const Element* row, int lane, int step,
                                         int shift) {
  Element elements[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) elements[i] = tap_at(a, row, tap_distance(lane, step, i, shift));
  uint2 share;
  __builtin_memcpy(&share, elements, sizeof(share));
  return share;
}

// The lane's shares of all steps. Contiguous taps without dilation are loaded inline, because rows of another alignment
// each need their own.
template <class Element>
__device__ __forceinline__ void fetch_steps(const LongFilterArguments<Element>& a, int channel, int lane, int shift,
                                            uint2 (&shares)[kFewSteps]) {
  const Element* const row = taps_of(a, channel);
  const bool is_contiguous = a.dilation == 1 && a.weight.strides[1] == 1;
  const int first = tap_distance(lane, 0, 0, shift);
#pragma unroll
  for (int s = 0; s < kFewSteps; ++s) {
    if (s >= a.steps) break;
    if (!is_contiguous) {
      shares[s] = fetch_step(a, row, lane, s, shift);
      continue;
    }
    Element elements[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = first + tap_distance(0, s, i, 0);
      const bool is_tap = static_cast<unsigned>(k) < static_cast<unsigned>(a.taps);
      elements[i] = is_tap ? row[k] : convert<Element>(0.0f);
    }
    __builtin_memcpy(&shares[s], elements, sizeof(shares[s]));
  }
}

// Both copies of the taps.
template <class Element>
__device__ __forceinline__ void fetch_taps(const LongFilterArguments<Element>& a, const Element* row,
                                           std::uint32_t taps, const Team<false>& team) {
  fill_tap_copies<Element>(static_cast<char*>(__cvta_shared_to_generic(taps)), a.steps, team.rank(), team.ranks(),
                           [&](int distance) { return tap_at(a, row, distance); });
}

}  // namespace sluice
