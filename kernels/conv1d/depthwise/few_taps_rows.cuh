// Depthwise conv1d with up to four taps, channels first: what a device copy does, and four products an output.
//
// A block is `lanes` threads along a row by as many rows as fill it. A thread has up to kWords words of outputs, a
// block's width of them apart, so that a warp's loads and stores are side by side; all loads are in flight before the
// first sum. Input and output lie alike against 16-byte words, so a word's window is the word of input at its place and
// what is beside it, `padding` elements before it and the other taps' behind:
//
//   input     ....|......bb|mmmmmmmm|a.......|....
//   outputs                 oooooooo                    |: 16-byte boundaries
//
// A word that a row's end cuts through is left to code that asks for each element.
#pragma once

#include "kernels/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// sums[j] += sum_k taps[k] * window[j + k]; the window begins Left elements before `main`.
template <int Left, class Element>
__device__ __forceinline__ void add_window(const float (&taps)[kFewTaps], int count, const Quad<Element>& before,
                                           const Word& main, const Quad<Element>& after, float* sums) {
  constexpr int kWidth = kWordElements<Element>;
  float values[4 + kWidth + 4];
  before.unpack_to(values);
  unpack<Element>(main, values + 4);
  after.unpack_to(values + 4 + kWidth);
#pragma unroll
  for (int k = 0; k < kFewTaps; ++k) {
    if (k >= count) break;  // not a product with zero: the window may hold infinities
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] = multiply_add(taps[k], values[4 - Left + k + j], sums[j]);
  }
}

// The same value, of which the compiler does not know where it comes from: a sum with it stays one addition, where sums
// of sums of 64 bits would be taken apart and put together anew for every word.
template <class T>
__device__ __forceinline__ T* settled(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// What a thread needs to know of its words: word g begins at `begin + g * step` of row (batch, channel).
template <class Element>
struct WordsOfRow {
  unsigned batch, channel;
  int step, begin;
  int last;  // a word at most here is all there, in the input and in the output, and this thread's
  int stop;  // words from here on are another block's

  __device__ __forceinline__ WordsOfRow(const Conv1dArguments<Element>& a, unsigned row, int first_word) {
    constexpr int kWidth = kWordElements<Element>;
    batch = a.by_channels.quotient_of_31_bits(row);
    channel = row - batch * static_cast<unsigned>(a.channels);
    step = a.lanes * kWidth;
    begin = first_word * kWidth - a.template misalignment<kWidth>(batch, channel);
    asm volatile("" : "+r"(begin));  // kept, not computed anew
    stop = begin + a.vectors_per_thread * step;
    last = min_of(min_of(static_cast<int>(a.length), static_cast<int>(a.output_length)) - kWidth, stop - 1);
  }
  __device__ __forceinline__ const Element* input_of(const Conv1dArguments<Element>& a) const {
    return settled(a.input.template as<const Element>() + batch * a.input.strides[0] +
                   a.by_multiplier.quotient_of_31_bits(channel) * a.input.strides[1]);
  }
  // Where the outputs at, at + 1, ... are in a tensor of the result's shape.
  __device__ __forceinline__ Place place_of(const long long* strides, int at, int first, int last) const {
    const long long offset = batch * strides[0] + channel * strides[1] + at * strides[2];
    return {.offset = offset, .stride = strides[2], .first = first, .last = last};
  }
  // Whether all that the outputs of the word need is in the tensor, and whole quads of it.
  __device__ __forceinline__ bool whole(const Conv1dArguments<Element>& a, int at) const {
    const int behind = static_cast<int>(a.length) - at - kWordElements<Element>, left = static_cast<int>(a.padding);
    const bool known_before = ((left == 0) & (at >= 0)) | (at >= 4) | ((at == 0) & (!a.history.exists()));
    const bool known_after = (a.taps - 1 <= left) | (behind >= 4) | (behind == 0);
    return (at <= last) & known_before & known_after;
  }
};

// The words that a row's end cuts through, element by element. A function of its own and the last that a thread does,
// so that the registers of neither count for the other.
template <class Post, class Element>
__device__ __noinline__ void convolve_cut_words(const Conv1dArguments<Element>& a, unsigned row, int first_word) {
  constexpr int kWidth = kWordElements<Element>, kWindow = kFewTaps - 1 + kWidth;
  constexpr int kSlices = kFewTapsChained / kWidth;  // what a linked chain takes: the second one of a float is nobody's
  const WordsOfRow<Element> words(a, row, first_word);
  const unsigned batch = words.batch, channel = words.channel;
  const int length = static_cast<int>(a.length), output_length = static_cast<int>(a.output_length);
  const int left = static_cast<int>(a.padding), end = min_of(output_length, words.stop);
  const Element* const input = words.input_of(a);
#pragma unroll 1
  for (int at = words.begin; at < end; at += words.step) {
    if (words.whole(a, at)) continue;
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
        // A word may begin before the history does.
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

// The row of the result.
template <class Chains, class Element>
struct RowOfResult {
  char* row;

  __device__ __forceinline__ RowOfResult(const Conv1dArguments<Element>& a, const WordsOfRow<Element>& words)
      : row(settled(a.output.template as<char>() +
                    (words.batch * a.output.strides[0] + words.channel * a.output.strides[1]) *
                        static_cast<long long>(size_of(a.output_type())))) {}

  // The chain, and the stores, of words c, c + 1, ... that are whole.
  template <int kChained>
  __device__ __forceinline__ void store(const Conv1dArguments<Element>& a, const WordsOfRow<Element>& words, int c,
                                        const bool (&whole)[kChained],
                                        float (&sums)[kChained * kWordElements<Element>]) const {
    constexpr int kWidth = kWordElements<Element>;
    const auto at = [&](int g) { return words.begin + (c + g) * words.step; };
    const auto place_of = [&](const long long* strides, int g) {
      return words.place_of(strides, at(g), 0, whole[g] ? kWidth : 0);
    };
    run_chain<typename Chains::Post, kWidth, kChained>(a.post, place_of, sums);
    store_slices<kWidth, kChained>(a.output_type(), sums, [&](auto* tag, int g, const float* own) {
      using Out = std::remove_pointer_t<decltype(tag)>;
      if (kChained == 1 || whole[g]) store_vector<Out, kWidth>(reinterpret_cast<Out*>(row) + at(g), own);
    });
  }
};

// Four taps, the last of them on the output's own position: nothing is read behind a word.
template <class Chains, class Element>
__device__ __forceinline__ void four_taps_rows(const Conv1dArguments<Element>& a, unsigned row, int first_word) {
  constexpr int kWidth = kWordElements<Element>, kWords = kFewTapsWords<Element>, kLeft = kFewTaps - 1;
  constexpr int kChained = kFewTapsChained / kWidth;
  const WordsOfRow<Element> words(a, row, first_word);
  const int step = words.step, begin = words.begin, last = words.last;
  // Only the first word may lie before the row or at its start.
  const bool first = (begin <= last) & ((begin >= 4) | ((begin == 0) & (!a.history.exists())));
  const Element* const input = words.input_of(a);

  Word main[kWords];
  Quad<Element> before[kWords];
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
    const bool there = g == 0 ? first : at <= last;
#pragma unroll
    for (int i = 0; i < 4; ++i) main[g].lanes[i] = anything();
    load_lanes_if(there, input + at, main[g].lanes);
  }
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
#pragma unroll
    for (int i = 0; i < Quad<Element>::kLanes; ++i) before[g].lanes[i] = g == 0 ? 0 : anything();
    load_lanes_if(g == 0 ? first & (begin > 0) : at <= last, input + at - 4, before[g].lanes);
  }
  const float bias = a.bias_of(words.channel);
  float taps[kFewTaps];
  with_element_type(known_dtype(LinkedTensor::weight, a.weight.dtype), [&](auto* tag) {
    using Weight = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    const Weight* const from = a.weight.template as<const Weight>() + words.channel * a.weight.strides[0];
    if constexpr (std::is_same_v<Weight, Element>) {
      if (a.dense_weight) {
        Quad<Element>::load(from).unpack_to(taps);
        return;
      }
    }
#pragma unroll
    for (int k = 0; k < kFewTaps; ++k) taps[k] = convert<float>(from[k * a.weight.strides[1]]);
  });
  const RowOfResult<Chains, Element> result(a, words);

#pragma unroll
  for (int c = 0; c < kWords; c += kChained) {
    bool whole[kChained];
#pragma unroll
    for (int g = 0; g < kChained; ++g) whole[g] = c + g == 0 ? first : begin + (c + g) * step <= last;
    if (c > 0 && !whole[0]) break;
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
#pragma unroll
      for (int k = 0; k < kFewTaps; ++k) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) own[j] = multiply_add(taps[k], values[4 - kLeft + k + j], own[j]);
      }
    }
    result.store(a, words, c, whole, sums);
  }

  if (!first | (words.stop - step > last)) convolve_cut_words<typename Chains::Post>(a, row, first_word);
}

// Any padding and any count of taps.
template <class Chains, class Element>
__device__ __forceinline__ void any_few_taps_rows(const Conv1dArguments<Element>& a, unsigned row, int first_word) {
  constexpr int kWidth = kWordElements<Element>, kWords = kFewTapsWords<Element>, kChained = kFewTapsChained / kWidth;
  const WordsOfRow<Element> words(a, row, first_word);
  const int step = words.step, begin = words.begin;
  const Element* const input = words.input_of(a);
  const int length = static_cast<int>(a.length), left = static_cast<int>(a.padding);
  const bool has_after = a.taps - 1 > left;
  Word main[kWords];
  unsigned all_whole = 0;  // a bit a word
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step;
    const bool all_there = words.whole(a, at);
#pragma unroll
    for (int i = 0; i < 4; ++i) main[g].lanes[i] = anything();
    load_lanes_if(all_there, input + at, main[g].lanes);
    all_whole |= static_cast<unsigned>(all_there) << g;
  }
  float taps[1][kFewTaps];
  load_few_taps(a, words.channel, taps);
  const float bias = a.bias_of(words.channel);
  const RowOfResult<Chains, Element> result(a, words);

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
    // Late, for the registers' sake: by now a neighbour's word has brought them into the L1 cache.
    Quad<Element> before[kChained], after[kChained];
#pragma unroll
    for (int g = 0; g < kChained; ++g) {
      const int at = begin + (c + g) * step;
#pragma unroll
      for (int i = 0; i < Quad<Element>::kLanes; ++i) before[g].lanes[i] = after[g].lanes[i] = 0;
      load_lanes_if(whole[g] & (left > 0) & (at > 0), input + at - 4, before[g].lanes);
      load_lanes_if(whole[g] & has_after & (at + kWidth < length), input + at + kWidth, after[g].lanes);
    }
    const auto add = [&](auto known_left) {
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        add_window<decltype(known_left)::value>(taps[0], a.taps, before[g], main[c + g], after[g], sums + g * kWidth);
      }
    };
    switch (left) {
      case 0: add(std::integral_constant<int, 0>{}); break;
      case 1: add(std::integral_constant<int, 1>{}); break;
      case 2: add(std::integral_constant<int, 2>{}); break;
      default: add(std::integral_constant<int, 3>{}); break;
    }
    result.store(a, words, c, whole, sums);
  }

  if (all_whole != (1u << a.vectors_per_thread) - 1) convolve_cut_words<typename Chains::Post>(a, row, first_word);
}

template <class Chains, class Element>
__device__ __forceinline__ void few_taps_rows(const Conv1dArguments<Element>& a) {
  const unsigned below = a.by_lanes.quotient_of_31_bits(threadIdx.x),
                 upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x - below * a.lanes);
  const unsigned row = upper * a.rows_per_block + below;
  if (row >= static_cast<unsigned>(a.batch) * static_cast<unsigned>(a.channels)) return;
  const int tile = static_cast<int>(blockIdx.x - upper * static_cast<unsigned>(a.by_across.divisor));
  const int first_word = tile * (a.vectors_per_thread * a.lanes) + lane;
  if (static_cast<int>(a.padding) == kFewTaps - 1 && a.taps == kFewTaps) {
    four_taps_rows<Chains>(a, row, first_word);
  } else {
    any_few_taps_rows<Chains>(a, row, first_word);
  }
}

// Without a chain: one that is not linked runs in the other kernels.
template <class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    few_taps_rows_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  few_taps_rows<NoChains>(a);
}

}  // namespace sluice
