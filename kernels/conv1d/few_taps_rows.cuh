// Depthwise conv1d with up to four taps, channels first: what a device copy does, and four products an output.
//
// A block is `lanes` threads along a row by as many rows as fill it. A thread has up to kWords words of outputs, a block's
// width of them apart, so that a warp's loads and stores are side by side; all loads are in flight before the first sum.
// Input and output lie alike against 16-byte words, so a word's window is the word of input at its place and what is beside
// it, `padding` elements before it and the other taps' behind:
//
//   input     ....|......bb|mmmmmmmm|a.......|....
//   outputs                 oooooooo                    |: 16-byte boundaries
//
// A word that a row's end cuts through is left to code that asks for each element.
#pragma once

#include "kernels/conv1d/few_taps.cuh"
#include "kernels/conv1d/rows_kernel.cuh"

namespace sluice {

// sums[j] += sum_k taps[k] * window[j + k]; the window begins Left elements before `main`. All: of kFewTaps taps.
template <int Left, bool All, class Element>
__device__ __forceinline__ void add_window(const float (&taps)[kFewTaps], int count, const Quad<Element>& before,
                                           const Word& main, const Quad<Element>& after, float* sums) {
  constexpr int kWidth = kWordElements<Element>;
  float values[4 + kWidth + 4];
  before.unpack_to(values);
  unpack<Element>(main, values + 4);
  after.unpack_to(values + 4 + kWidth);
#pragma unroll
  for (int k = 0; k < kFewTaps; ++k) {
    if (!All && k >= count) break;  // not a product with zero: the window may hold infinities
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] = multiply_add(taps[k], values[4 - Left + k + j], sums[j]);
  }
}

// The outputs at, at + 1, ... of a word, element by element at the row's ends. Not in line: its registers are many.
template <class Post, class Element>
__device__ __noinline__ void convolve_cut_word(const Conv1dArguments<Element>& a, int batch, int channel, int at) {
  constexpr int kWidth = kWordElements<Element>;
  const int last = static_cast<int>(min_of<long long>(kWidth, a.output_length - at));
  const RowSpan span{batch, channel, at, max_of(0, -at), last};
  const GlobalRow<Element, void> row(a, span);
  convolve_row<Element, kWidth, true, Post>(a, span, row, [&](int k) { return a.tap(channel, k); });
}

template <class Chains, class Element>
__device__ __forceinline__ void few_taps_rows(const Conv1dArguments<Element>& a) {
  constexpr int kWidth = kWordElements<Element>, kWords = kFewTapsWords<Element>, kChained = Chains::kFewTapsValues / kWidth;
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lane = static_cast<int>(threadIdx.x) - below * a.lanes;
  const int upper = static_cast<int>(a.by_across.quotient_of_31_bits(blockIdx.x)), row = upper * a.rows_per_block + below;
  if (row >= static_cast<int>(a.batch * a.channels)) return;
  const int tile = static_cast<int>(blockIdx.x) - upper * static_cast<int>(a.by_across.divisor);
  const int batch = static_cast<int>(a.by_channels.quotient_of_31_bits(row));
  const int channel = row - batch * static_cast<int>(a.channels);
  const Element* const input =
      a.input + batch * a.input_strides[0] + static_cast<int>(a.by_multiplier.quotient_of_31_bits(channel)) * a.input_strides[1];
  const int length = static_cast<int>(a.length), output_length = static_cast<int>(a.output_length);
  const int left = static_cast<int>(a.padding);
  const bool has_after = a.taps - 1 > left;
  const int begin = (tile * a.groups * a.lanes + lane) * kWidth - a.template misalignment<kWidth>(batch, channel);
  const int step = a.lanes * kWidth;  // from a thread's word to its next

  // Words from `end` on are another block's, or nobody's. A word at most at `last` is all there, in the input and in the output.
  const int end = min_of(output_length, begin + a.groups * step);
  const int last = min_of(min_of(length, output_length) - kWidth, end - 1);
  Word main[kWords];
  Quad<Element> before[kWords];
  unsigned whole = 0;  // a bit a word
  // No branches here: they would stand between the loads.
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    const int at = begin + g * step, behind = length - at - kWidth;
    const bool known_before = (left == 0) | (at >= 4) | ((at == 0) & (a.history == nullptr));
    const bool known_after = !has_after | (behind >= 4) | (behind == 0);
    const bool all_there = (at >= 0) & (at <= last) & known_before & known_after;
    main[g] = Word{};
    before[g] = Quad<Element>{};
    if (all_there) main[g] = load_word(input + at);
    if (all_there & (left > 0) & (at >= 4)) before[g] = Quad<Element>::load(input + at - 4);
    whole |= static_cast<unsigned>(all_there) << g;
  }
  float taps[1][kFewTaps];
  load_few_taps(a, channel, taps);
  const float bias = a.bias_of(channel);
  const auto place_of = [&](int operand, int at, int first, int last) {
    const long long* const strides = a.post.operands[operand].strides;
    const long long offset = batch * strides[0] + channel * strides[1] + at * strides[2];
    return Place{offset, strides[2], first, last, a.post.operands[operand].extent};
  };

#pragma unroll
  for (int c = 0; c < kWords; c += kChained) {
    if (c >= a.groups) break;
    float sums[kChained * kWidth];
#pragma unroll
    for (int i = 0; i < kChained * kWidth; ++i) sums[i] = bias;
    // Late, for the registers' sake: by now a neighbour's word has brought it into the L1 cache.
    Quad<Element> after[kChained];
#pragma unroll
    for (int g = 0; g < kChained; ++g) {
      const int from = begin + (c + g) * step + kWidth;
      after[g] = Quad<Element>{};
      if (has_after & (((whole >> (c + g)) & 1) != 0) & (from < length)) after[g] = Quad<Element>::load(input + from);
    }
    const auto add = [&](auto known_left, auto all) {
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        add_window<decltype(known_left)::value, decltype(all)::value>(taps[0], a.taps, before[c + g], main[c + g], after[g],
                                                                      sums + g * kWidth);
      }
    };
    if (left == 3 && a.taps == kFewTaps) {
      add(std::integral_constant<int, 3>{}, std::true_type{});
    } else {
      switch (left) {
        case 0: add(std::integral_constant<int, 0>{}, std::false_type{}); break;
        case 1: add(std::integral_constant<int, 1>{}, std::false_type{}); break;
        case 2: add(std::integral_constant<int, 2>{}, std::false_type{}); break;
        default: add(std::integral_constant<int, 3>{}, std::false_type{}); break;
      }
    }
    const typename Chains::Post chain{a.post};
    const auto loads = chain.template load<kWidth, kChained>(
        [&](int operand, int g) { return place_of(operand, begin + (c + g) * step, 0, (whole >> (c + g)) & 1 ? kWidth : 0); });
    chain.template apply<kWidth, kChained>(sums, loads);
    with_element_type(a.output_type(), [&](auto* tag) {
      using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
      Out* const to = static_cast<Out*>(a.output) + batch * a.output_strides[0] + channel * a.output_strides[1] + begin;
#pragma unroll
      for (int g = 0; g < kChained; ++g) {
        if ((whole >> (c + g)) & 1) store_vector<Out, kWidth>(to + (c + g) * step, sums + g * kWidth);
      }
    });
  }

#pragma unroll 1
  for (int at = begin; at < end; at += step, whole >>= 1) {
    if ((whole & 1) == 0 && at > -kWidth) convolve_cut_word<typename Chains::Post>(a, batch, channel, at);
  }
}

template <class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    few_taps_rows_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  few_taps_rows<InterpretedChains<Element, false>>(a);
}

}  // namespace sluice
