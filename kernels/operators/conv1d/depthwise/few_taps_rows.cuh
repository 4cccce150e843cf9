// Depthwise conv1d with up to four taps, channels-first: a device copy's memory traffic, and four products an output.
//
// A block is `lanes` threads along a row by as many rows as fit. A thread has up to kWords words of outputs, a block's
// width apart, so that a warp's loads and stores are contiguous; all loads are in flight before the first sum. Words of
// outputs are aligned. The window of each has one aligned word of input, `main`, `left` elements before it and others
// after it:
//
//   input     ....|......bb|mmmmmmmm|a.......|....      |: 16-byte boundaries of the input
//   outputs              |oooooooo|                     |: of the output, the same if rows are equally aligned
//
// Input and output may be aligned differently. All of a row's words have the same `left`, and the same distance from
// outputs to `main`. If the window starts in the first half of a word, that word is `main`, and `left` is 0 or
// negative.
//
// Words cut by a row's end are left to code that checks each element.
#pragma once

#include "kernels/operators/conv1d/depthwise/few_taps_words.cuh"

namespace sluice {

// The words cut by a row's end, element by element. Last in a thread, and a function of its own, so that registers are
// not live across both.
template <class Post, class Element>
__device__ __noinline__ void convolve_cut_words(const WordsArguments<Element>& a, unsigned row, int first_word) {
  constexpr int kWidth = kWordElements<Element>, kWindow = kFewTaps - 1 + kWidth;
  constexpr int kSlices = kFewTapsChained / kWidth;  // the width of a linked chain: a float's second slice is unused
  const WordsOfRow<Element> words(a, row, first_word);
  const WindowsOfRow<Element> windows(a, words);
  const unsigned batch = words.batch, channel = words.channel;
  const int length = static_cast<int>(a.length), output_length = static_cast<int>(a.output_length);
  const int left = static_cast<int>(a.padding), end = min_of(output_length, words.stop);
  const Element* const input = words.input_of(a);
#pragma unroll 1
  for (int at = words.begin; at < end; at += words.step) {
    if (windows.whole(at)) continue;
    const int from = at - left;
    float values[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      Element element = convert<Element>(0.0f);
      if (from + i >= 0 && from + i < length) element = input[from + i];
      values[i] = convert<float>(element);
    }
    if (at < left && a.history.exists()) {
      const unsigned input_channel = a.by_multiplier.quotient_of_31_bits(channel);
      const long long offset = batch * a.history.strides[0] + input_channel * a.history.strides[1];
#pragma unroll
      for (int i = 0; i < kWindow; ++i) {
        // A word may begin before the history.
        if (from + i < 0 && at + i >= 0) {
          values[i] = convert<float>(
              convert<Element>(load_as<float>(a.history.data, known_dtype(LinkedTensor::history, a.history.dtype),
                                              offset + (at + i) * a.history.strides[2])));
        }
      }
    }
    float sums[kSlices * kWidth];
    const float bias = a.bias_of(channel);
#pragma unroll
    for (int j = 0; j < kSlices * kWidth; ++j) sums[j] = bias;
#pragma unroll
    for (int k = 0; k < kFewTaps; ++k) {
      if (k >= a.taps) break;  // not a product with zero: the window may hold infinities
      const float tap = a.tap(channel, k);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] = multiply_add(tap, values[k + j], sums[j]);
    }
    const int first = max_of(0, -at), last = min_of(kWidth, output_length - at);
    const auto place_of = [&](const long long* strides, int slice) {
      return words.place_of(strides, at, slice == 0 ? first : 0, slice == 0 ? last : 0);
    };
    run_chain<Post, kWidth, kSlices>(a.post, place_of, sums);
    store_slices<kWidth, 1>(a.output_type(), sums, [&](auto* tag, int, const float* own) {
      using Out = std::remove_pointer_t<decltype(tag)>;
      Out* const to = a.output.template as<Out>() + batch * a.output.strides[0] + channel * a.output.strides[1] + at;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (first <= j && j < last) to[j] = convert<Out>(own[j]);
      }
    });
  }
}

// A row of the result.
template <class Chains, class Element>
struct RowOfResult {
  char* row;

  __device__ __forceinline__ RowOfResult(const Conv1dArguments<Element>& a, const WordsOfRow<Element>& words)
      : row(settled(a.output.template as<char>() +
                    (words.batch * a.output.strides[0] + words.channel * a.output.strides[1]) *
                        static_cast<long long>(size_of(a.output_type())))) {}

  // Applies the chain to words c, c + 1, ... that are whole, and stores them.
  template <int kChained, class Ends>
  __device__ __forceinline__ void store(const Conv1dArguments<Element>& a, const WordsOfRow<Element>& words, int c,
                                        const bool (&whole)[kChained], float (&sums)[kChained * kWordElements<Element>],
                                        const Ends& ends) const {
    constexpr int kWidth = kWordElements<Element>;
    const auto at = [&](int g) { return words.begin + (c + g) * words.step; };
    const auto place_of = [&](const long long* strides, int g) {
      return words.place_of(strides, at(g), 0, whole[g] ? kWidth : 0);
    };
    run_chain<typename Chains::Post, kWidth, kChained>(a.post, place_of, sums);
#pragma unroll
    for (int i = 0; i < kChained * kWidth; ++i) sums[i] = ends.is_zero(c + i / kWidth, i % kWidth) ? 0.0f : sums[i];
    store_slices<kWidth, kChained>(a.output_type(), sums, [&](auto* tag, int g, const float* own) {
      using Out = std::remove_pointer_t<decltype(tag)>;
      if (kChained == 1 || whole[g]) store_vector<Out, kWidth>(reinterpret_cast<Out*>(row) + at(g), own);
    });
  }
};

// few_taps_rows leaves out the words cut by a row's end. Another type replaces RowEnds for rows of several sequences
// (kernels/operators/causal_conv1d/sequences_rows.cuh):
//
//   Ends(a, words)                           a thread's
//   is_cut(g), are_cut()                     whether word g, or any, has outputs whose windows leave their sequence, or
//                                            is left to `finish`
//   reaches(g, j, back), is_zero(g, j)       whether output j's tap `back` is in its sequence; or its result is 0
//   is_left(g), are_any()                    whether word g is left to `finish`; whether `finish` has work
//   finish<Post>(a, row, first_word, done)   a bit of `done` is a word that has its results
//   kLoadsHistory, load_history(a, words, before)
//                                            whether it loads the values before the row's first word
//   not_loaded()                             a value for what is not loaded and not used
struct RowEnds {
  static constexpr bool kLoadsHistory = false;
  __device__ __forceinline__ static std::uint32_t not_loaded() { return anything(); }

  template <class... Arguments>
  __device__ explicit RowEnds(const Arguments&...) {}

  __device__ __forceinline__ static constexpr bool is_cut(int) { return false; }
  __device__ __forceinline__ static constexpr bool are_cut() { return false; }
  __device__ __forceinline__ static constexpr bool reaches(int, int, int) { return true; }
  __device__ __forceinline__ static constexpr bool is_zero(int, int) { return false; }
  __device__ __forceinline__ static constexpr bool is_left(int) { return false; }
  __device__ __forceinline__ static constexpr bool are_any() { return false; }
  template <class Post, class Arguments>
  __device__ __forceinline__ void finish(const Arguments& a, unsigned row, int first_word, unsigned) const {
    convolve_cut_words<Post>(a, row, first_word);
  }
};

// Without the checks if no word of a thread is cut: fewer instructions.
template <class Ends, class Convolve>
__device__ __forceinline__ void convolve_with(const Ends& ends, const Convolve& convolve) {
  if constexpr (std::is_base_of_v<RowEnds, Ends>) {
    convolve(ends);
  } else if (ends.are_cut()) {
    convolve(ends);
  } else {
    convolve(RowEnds());
  }
}

// sums[j] += taps[k] * window[j + k], in the order of k, with zeros for values of other sequences.
template <int Width, class Ends>
__device__ __forceinline__ void add_cut_window(const Ends& ends, int g, const float (&taps)[kFewTaps], int count,
                                               const float* window, float* sums) {
#pragma unroll
  for (int k = 0; k < kFewTaps; ++k) {
    if (k > 0 && k >= count) break;
#pragma unroll
    for (int j = 0; j < Width; ++j) {
      sums[j] = multiply_add(taps[k], ends.reaches(g, j, count - 1 - k) ? window[j + k] : 0.0f, sums[j]);
    }
  }
}

// Four taps, the last of them on the output's own position, and equally aligned rows: `main` is at the outputs, and
// nothing is read after it.
template <class Chains, class Ends, class Arguments>
__device__ __forceinline__ void four_taps_rows(const Arguments& a, unsigned row, int first_word) {
  using Element = typename Arguments::Input;
  constexpr int kWidth = kWordElements<Element>, kWords = kFewTapsWords<Element>, kLeft = kFewTaps - 1;
  constexpr int kChained = kFewTapsChained / kWidth;
  const WordsOfRow<Element> words(a, row, first_word);
  const int step = words.step, begin = words.begin, last = words.last(a, 0);
  // Only the first word may start before the row or at its start.
  const bool first = (begin <= last) & ((begin >= 4) | ((begin == 0) & (Ends::kLoadsHistory || !a.history.exists())));
  const Element* const input = words.input_of(a);

  Word main[kWords];
  Quad<Element> before[kWords];
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
    const bool there = g == 0 ? first : at <= last;
#pragma unroll
    for (int i = 0; i < 4; ++i) main[g].lanes[i] = Ends::not_loaded();
    load_lanes_if(there, input + at, main[g].lanes);
  }
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
#pragma unroll
    for (int i = 0; i < Quad<Element>::kLanes; ++i) before[g].lanes[i] = g == 0 ? 0 : Ends::not_loaded();
    load_lanes_if(g == 0 ? first & (begin > 0) : at <= last, input + at - 4, before[g].lanes);
  }
  if constexpr (Ends::kLoadsHistory) Ends::load_history(a, words, before[0]);
  const Ends ends(a, words);
  const float bias = a.bias_of(words.channel);
  float taps[kFewTaps];
  load_taps_of_row(a, words.channel, taps);
  const RowOfResult<Chains, Element> result(a, words);

  unsigned done = 0;
  const auto convolve = [&](const auto& own_ends) {
#pragma unroll
    for (int c = 0; c < kWords; c += kChained) {
      bool whole[kChained];
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        whole[g] = (c + g == 0 ? first : begin + (c + g) * step <= last) && !own_ends.is_left(c + g);
        done |= static_cast<unsigned>(whole[g]) << (c + g);
      }
      if (c > 0 && begin + c * step > last) break;
      if (kChained == 1 && !whole[0]) continue;
      float sums[kChained * kWidth];
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        const Word& word = main[c + g];
        const Quad<Element>& ahead = before[c + g];
        float values[4 + kWidth];
        float* const own = sums + g * kWidth;
        ahead.unpack_to(values);
        unpack<Element>(word, values + 4);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) own[j] = bias;
        if (own_ends.is_cut(c + g)) {
          add_cut_window<kWidth>(own_ends, c + g, taps, kFewTaps, values + 4 - kLeft, own);
          continue;
        }
#pragma unroll
        for (int k = 0; k < kFewTaps; ++k) {
#pragma unroll
          for (int j = 0; j < kWidth; ++j) own[j] = multiply_add(taps[k], values[4 - kLeft + k + j], own[j]);
        }
      }
      result.store(a, words, c, whole, sums, own_ends);
    }
  };
  convolve_with(ends, convolve);

  if (!first | (words.stop - step > last) | ends.are_any()) {
    ends.template finish<typename Chains::Post>(a, row, first_word, done);
  }
}

// Any padding, up to four taps, any alignment.
template <class Chains, class Ends, class Arguments>
__device__ __forceinline__ void any_few_taps_rows(const Arguments& a, unsigned row, int first_word) {
  using Element = typename Arguments::Input;
  constexpr int kWidth = kWordElements<Element>, kWords = kFewTapsWords<Element>, kChained = kFewTapsChained / kWidth;
  const WordsOfRow<Element> words(a, row, first_word);
  const WindowsOfRow<Element> windows(a, words);
  const int step = words.step, begin = words.begin;
  const Element* const input = settled(words.input_of(a) + windows.apart);  // `main` of outputs at 0
  Word main[kWords];
  unsigned all_whole = 0;  // a bit per word
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
    const bool all_there = windows.whole(at);
#pragma unroll
    for (int i = 0; i < 4; ++i) main[g].lanes[i] = Ends::not_loaded();
    load_lanes_if(all_there, input + at, main[g].lanes);
    all_whole |= static_cast<unsigned>(all_there) << g;
  }
  asm volatile("" : "+r"(all_whole));  // kept, not recomputed
  const Ends ends(a, words);
#pragma unroll
  for (int g = 0; g < kWords; ++g) all_whole &= ~(static_cast<unsigned>(ends.is_left(g)) << g);
  float taps[kFewTaps];
  load_taps_of_row(a, words.channel, taps);
  const float bias = a.bias_of(words.channel);
  const RowOfResult<Chains, Element> result(a, words);

  const auto convolve = [&](const auto& own_ends) {
#pragma unroll
    for (int c = 0; c < kWords; c += kChained) {
      if (c >= a.vectors_per_thread) break;
      bool whole[kChained];
#pragma unroll
      for (int g = 0; g < kChained; ++g) whole[g] = ((all_whole >> (c + g)) & 1) != 0;
      if (kChained == 1 && !whole[0]) continue;
      float sums[kChained * kWidth];
#pragma unroll
      for (int i = 0; i < kChained * kWidth; ++i) sums[i] = bias;
      // Late, to save registers: by now a neighbour's word has brought them into the L1 cache.
      Window<Element> window[kChained];
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        const int at = begin + (c + g) * step;
        window[g] = {.before = {}, .main = main[c + g], .after = {}};
        load_lanes_if(whole[g] & (at > windows.before_from), input + at - 4, window[g].before.lanes);
        load_behind_if(whole[g] & (at < windows.quads_until), whole[g] & (at < windows.words_until),
                       input + at + kWidth, window[g].after);
      }
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        float values[kWidth + 4];
        unpack_window<Element>(window[g], windows.left, values);
        if (own_ends.is_cut(c + g)) {
          add_cut_window<kWidth>(own_ends, c + g, taps, a.taps, values, sums + g * kWidth);
          continue;
        }
#pragma unroll
        for (int k = 0; k < kFewTaps; ++k) {
          if (k > 0 && k >= a.taps) break;  // not a product with zero: the window may hold infinities
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            sums[g * kWidth + j] = multiply_add(taps[k], values[j + k], sums[g * kWidth + j]);
          }
        }
      }
      result.store(a, words, c, whole, sums, own_ends);
    }
  };
  convolve_with(ends, convolve);

  if (all_whole != (1u << a.vectors_per_thread) - 1 || ends.are_any()) {
    ends.template finish<typename Chains::Post>(a, row, first_word, all_whole);
  }
}

// A block's rows from `first_row` on, before `end_row`: one tile of each.
template <class Chains, class Ends, class Arguments>
__device__ __forceinline__ void few_taps_rows(const Arguments& a, unsigned first_row, unsigned end_row, int tile) {
  const unsigned below = a.by_lanes.quotient_of_31_bits(threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x - below * a.lanes);
  const unsigned row = first_row + below;
  if (row >= end_row) return;
  const int first_word = tile * (a.vectors_per_thread * a.lanes) + lane;
  if (static_cast<int>(a.padding) == kFewTaps - 1 && a.taps == kFewTaps && a.equally_aligned) {
    four_taps_rows<Chains, Ends>(a, row, first_word);
  } else {
    any_few_taps_rows<Chains, Ends>(a, row, first_word);
  }
}

template <class Chains, class Ends = RowEnds, class Arguments>
__device__ __forceinline__ void few_taps_rows(const Arguments& a) {
  const unsigned upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const int tile = static_cast<int>(blockIdx.x - upper * static_cast<unsigned>(a.by_across.divisor));
  const unsigned rows = static_cast<unsigned>(a.batch) * static_cast<unsigned>(a.channels);
  few_taps_rows<Chains, Ends>(a, upper * a.rows_per_block, rows, tile);
}

// Without chains: a chain that is not linked runs in the other kernels.
template <class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    few_taps_rows_kernel(const __grid_constant__ WordsArguments<Element> a) {
  few_taps_rows<NoChains>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::few_taps_rows, Element> {
  static Kernel<WordsArguments<Element>> of(const Conv1dParams&) { return few_taps_rows_kernel<Element>; }
};

}  // namespace sluice
