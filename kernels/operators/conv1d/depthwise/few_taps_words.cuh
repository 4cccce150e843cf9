// A row as few_taps_rows sees it: its words of outputs, their windows of inputs, its taps.
#pragma once

#include "kernels/operators/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// The extent of a word's window: four elements before `main`, and a word after it.
template <class Element>
struct Window {
  Quad<Element> before;
  Word main, after;
};

// A quad or a word after `main`.
template <class Element>
__device__ __forceinline__ void load_behind_if(bool is_quad, bool is_word, const Element* from, Word& word) {
  if constexpr (sizeof(Element) == 2) {
    std::uint32_t quad[2] = {word.lanes[0], word.lanes[1]};
    load_lanes_if(is_quad, from, quad);
    word.lanes[0] = quad[0];
    word.lanes[1] = quad[1];
  }
  load_lanes_if(sizeof(Element) == 2 ? is_word : is_quad, from, word.lanes);
}

// The values from `left` elements before `main` on. Run-time shifts replace a copy of the products for each `left`, and
// rows of one warp with different alignments do not diverge.
template <class Element>
__device__ __forceinline__ void unpack_window(const Window<Element>& window, int left,
                                              float (&values)[kWordElements<Element> + 4]) {
  constexpr int kHalf = sizeof(Element) == 2, kAhead = Quad<Element>::kLanes;
  // A float's `left` is at most 3: its first lane is not used.
  constexpr int kFirst = kHalf ? 0 : 1, kCount = kHalf ? 6 : 7;
  std::uint32_t lanes[kAhead + 8];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) lanes[i] = window.before.lanes[i];
#pragma unroll
  for (int i = 0; i < 8; ++i) lanes[kAhead + i] = i < 4 ? window.main.lanes[i] : window.after.lanes[i - 4];
  const auto skip_if = [&lanes](bool skips, auto count, int needed) {
#pragma unroll
    for (int i = kFirst; i < kFirst + needed; ++i) lanes[i] = skips ? lanes[i + count] : lanes[i];
  };
  const int skipped = 4 - left - kFirst;  // elements
  if constexpr (kHalf) {
    skip_if((skipped & 4) != 0, std::integral_constant<int, 2>{}, kCount + 2);
    skip_if((skipped & 2) != 0, std::integral_constant<int, 1>{}, kCount + 1);
#pragma unroll
    for (int i = 0; i < kCount; ++i) lanes[i] = __funnelshift_r(lanes[i], lanes[i + 1], 16 * (skipped & 1));
  } else {
    skip_if((skipped & 2) != 0, std::integral_constant<int, 2>{}, kCount + 1);
    skip_if((skipped & 1) != 0, std::integral_constant<int, 1>{}, kCount);
  }
  unpack<Element>(Word{{lanes[kFirst], lanes[kFirst + 1], lanes[kFirst + 2], lanes[kFirst + 3]}}, values);
  Quad<Element> rest;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) rest.lanes[i] = i < kCount - 4 ? lanes[kFirst + 4 + i] : 0;
  rest.unpack_to(values + kWordElements<Element>);
}

// The same value, hidden from the compiler: a sum with it stays one addition; otherwise 64-bit sums of sums would be
// reassociated for every word.
template <class T>
__device__ __forceinline__ T* settled(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// A thread's words: word g starts at `begin + g * step` of row (batch, channel).
template <class Element>
struct WordsOfRow {
  unsigned batch, channel;
  int step, begin;
  int stop;  // words from here on belong to another block

  __device__ __forceinline__ WordsOfRow(const WordsArguments<Element>& a, unsigned row, int first_word) {
    constexpr int kWidth = kWordElements<Element>;
    batch = a.by_channels.quotient_of_31_bits(row);
    channel = row - batch * static_cast<unsigned>(a.channels);
    step = a.lanes * kWidth;
    begin = first_word * kWidth - a.template misalignment<kWidth>(batch, channel);
    asm volatile("" : "+r"(begin));  // kept, not recomputed
    stop = begin + a.vectors_per_thread * step;
  }
  // The last start of a whole word: its outputs exist and are this block's, and its inputs, `apart` elements away,
  // exist.
  __device__ __forceinline__ int last(const Conv1dArguments<Element>& a, int apart) const {
    const int both = min_of(static_cast<int>(a.length) - apart, static_cast<int>(a.output_length));
    return min_of(both - kWordElements<Element>, stop - 1);
  }
  __device__ __forceinline__ const Element* input_of(const Conv1dArguments<Element>& a) const {
    return settled(a.input.template as<const Element>() + batch * a.input.strides[0] +
                   a.by_multiplier.quotient_of_31_bits(channel) * a.input.strides[1]);
  }
  // The places of outputs at, at + 1, ... in a tensor of the result's shape.
  __device__ __forceinline__ Place place_of(const long long* strides, int at, int first, int last) const {
    const long long offset = batch * strides[0] + channel * strides[1] + at * strides[2];
    return {.offset = offset, .stride = strides[2], .first = first, .last = last};
  }
};

// The windows of a row's words in the input.
template <class Element>
struct WindowsOfRow {
  int left;         // elements of a window before `main`; negative: elements of `main` before the window
  int right;        // elements after `main`, or 0 and less
  int apart;        // elements from a word's outputs to `main`
  int first, last;  // whole words: all outputs and all inputs of the window exist
  // Whole words above `before_from` load the quad before `main`; those below `quads_until` load the quad after it, and
  // those below `words_until` the word after it. Values not loaded are zero or not used.
  int before_from, quads_until, words_until;

  __device__ __forceinline__ WindowsOfRow(const Conv1dArguments<Element>& a, const WordsOfRow<Element>& words) {
    constexpr int kWidth = kWordElements<Element>, kLeast = kWidth == 8 ? -3 : 0;
    const long long row =
        words.batch * a.input.strides[0] + a.by_multiplier.quotient_of_31_bits(words.channel) * a.input.strides[1];
    const int length = static_cast<int>(a.length), padding = static_cast<int>(a.padding);
    const int place = static_cast<int>(reinterpret_cast<std::uintptr_t>(a.input.data) / sizeof(Element) + row);
    left = ((padding - words.begin - place - kLeast) & (kWidth - 1)) + kLeast;
    right = a.taps - 1 - left;
    apart = left - padding;
    // A neighbour of `main` is whole, or it is zeros because the row begins or ends with `main`.
    const int start = words.begin + apart;  // the start of a `main`; the others are whole words away
    const bool zeros_before = (start & (kWidth - 1)) == 0 && !a.history.exists();
    const bool zeros_behind = ((length - start) & (kWidth - 1)) == 0;
    first = max_of(0, (left <= 0 || zeros_before ? 0 : 4) - apart);
    const int behind = right <= 0 || zeros_behind ? 0 : right <= 4 ? 4 : kWidth;
    last = words.last(a, apart + behind);
    constexpr int kNever = 1 << 30;
    const int end = length - apart - kWidth;  // where `main` is the row's last word
    before_from = left > 0 ? -apart : kNever;
    quads_until = 0 < right && right <= 4 ? end : -kNever;
    words_until = right > 4 ? end : -kNever;
    asm volatile("" : "+r"(before_from), "+r"(quads_until), "+r"(words_until));  // kept, not recomputed
  }
  __device__ __forceinline__ bool whole(int at) const { return (at >= first) & (at <= last); }
};

// The taps of a channel, with their loads in flight together; taps[k] from k = `a.taps` on are not used.
template <class Element>
__device__ __forceinline__ void load_taps_of_row(const WordsArguments<Element>& a, unsigned channel,
                                                 float (&taps)[kFewTaps]) {
  with_element_type(known_dtype(LinkedTensor::weight, a.weight.dtype), [&](auto* tag) {
    using Weight = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    const Weight* const from = a.weight.template as<const Weight>() + channel * a.weight.strides[0];
    if constexpr (std::is_same_v<Weight, Element>) {
      if (a.contiguous_weight && a.taps == kFewTaps) {
        Quad<Element>::load(from).unpack_to(taps);
        return;
      }
    }
#pragma unroll
    for (int k = 0; k < kFewTaps; ++k) taps[k] = convert<float>(from[min_of(k, a.taps - 1) * a.weight.strides[1]]);
  });
}

}  // namespace sluice
