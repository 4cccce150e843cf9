// Depthwise conv1d, channels-first, with at most a word's elements of taps: stride and dilation 1, no `pre`, any
// alignment.
//
// A block is `lanes` threads along a row by as many rows as fit. A thread has kPlainRowWords words of outputs, a
// block's width apart, so that a warp's loads and stores are contiguous. Words of the output are aligned, and the
// window of each starts `shift` elements into the first of three aligned words of the input. All of a row's words have
// the same shift. Adjacent threads need the same words, so two of the three come from the L1 cache:
//
//   input     |....ssww|wwwwwwww|wwwwwwww|       |: 16-byte boundaries of the input
//                   wwwwwwwwwwwwww               the window of a word: width + taps - 1 elements
//   outputs         |oooooooo|                   |: of the output
#pragma once

#include "kernels/operators/conv1d/depthwise/few_taps.cuh"

namespace sluice {

template <class Element>
inline constexpr int kPlainRowWords = plain_row_words(kDType<Element>);

// The 32 bytes that start `shift` bytes into three words.
template <class Element>
__device__ __forceinline__ void shift_window(const Word (&from)[3], int shift, Word (&to)[2]) {
  std::uint32_t lanes[12];
#pragma unroll
  for (int i = 0; i < 12; ++i) lanes[i] = from[i / 4].lanes[i % 4];
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 10; ++i) lanes[i] = lanes[i + 2];
  }
  if (sizeof(Element) <= 4 && (shift & 4)) {
#pragma unroll
    for (int i = 0; i < 9; ++i) lanes[i] = lanes[i + 1];
  }
  const int bits = (shift & 3) * 8;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    to[i / 4].lanes[i % 4] = sizeof(Element) < 4 ? __funnelshift_r(lanes[i], lanes[i + 1], bits) : lanes[i];
  }
}

// A thread's words: outputs begin + g * step, ... of row (batch, channel).
template <class Element>
struct PlainWords {
  static constexpr int kWidth = kWordElements<Element>;
  long long batch, channel, begin, start;  // start: position of the first word's window
  int step, shift;
  int least, behind, left, count;

  __device__ __forceinline__ PlainWords(const WordsArguments<Element>& a, long long row, long long tile, int lane)
      : batch(a.by_channels.quotient(row)), channel(row - batch * a.channels), step(a.lanes * kWidth) {
    begin = tile * a.vectors_per_thread * step + lane * kWidth - a.template misalignment<kWidth>(batch, channel);
    start = begin - a.padding;
    shift = static_cast<int>(
        (static_cast<long long>(reinterpret_cast<std::uintptr_t>(row_of(a)) / sizeof(Element)) + start) & (kWidth - 1));
    // Counted from the first word of inputs, in 32 bits: no thread reaches further.
    constexpr long long kFar = 1LL << 30;
    least = static_cast<int>(a.input.strides[2] == 1 ? min_of(kFar, max_of<long long>(shift - start, 0)) : kFar);
    behind = static_cast<int>(max_of(-kFar, min_of(kFar, a.length - start + shift)));
    left = static_cast<int>(min_of(kFar, a.output_length - begin));
    count = a.vectors_per_thread;
  }
  __device__ __forceinline__ const Element* row_of(const Conv1dArguments<Element>& a) const {
    return a.input.template as<const Element>() + batch * a.input.strides[0] +
           a.by_multiplier.quotient(channel) * a.input.strides[1];
  }
  __device__ __forceinline__ bool exists(int g) const { return g < count && g * step < left; }
  // Whether the three words of its inputs and all of its outputs are inside their tensors.
  __device__ __forceinline__ bool whole(int g) const {
    return (g < count) & (g * step >= least) & (g * step + 3 * kWidth <= behind) & (g * step + kWidth <= left) &
           (begin + g * step >= 0);
  }
  __device__ __forceinline__ Place place_of(const long long* strides, int g, int first, int last) const {
    const long long offset = batch * strides[0] + channel * strides[1] + (begin + g * step) * strides[2];
    return {.offset = offset, .stride = strides[2], .first = first, .last = last};
  }
};

// The words that are not whole, element by element. Last in a thread, and a function of its own, so that registers are
// not live across both.
template <class Post, class Element>
__device__ __noinline__ void convolve_cut_plain_words(const WordsArguments<Element>& a, long long row, unsigned tile,
                                                      int lane) {
  const PlainWords<Element> own(a, row, tile, lane);
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kWords = kPlainRowWords<Element>;
#pragma unroll 1
  for (int g = 0; g < own.count; ++g) {
    if (own.whole(g) || !own.exists(g)) continue;
    const long long input_channel = a.by_multiplier.quotient(own.channel), start = own.start + g * own.step;
    T values[2 * kWidth], sums[kWords * kWidth];  // only the chain's first slices are used
    unpack<Element>(gather_word(a, own.batch, input_channel, start, 0, 1), values);
    unpack<Element>(gather_word(a, own.batch, input_channel, start + kWidth, 0, 1), values + kWidth);
    const T bias = a.bias_of(own.channel);
#pragma unroll
    for (int i = 0; i < kWords * kWidth; ++i) sums[i] = bias;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (k >= a.taps) break;  // not a product with zero: the window may hold infinities
      const T tap = a.tap(own.channel, k);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[j] = multiply_add(tap, values[k + j], sums[j]);
    }
    const long long at = own.begin + g * own.step;
    const int first = at < 0 ? static_cast<int>(-at) : 0, last = min_of(kWidth, own.left - g * own.step);
    const auto place_of = [&](const long long* strides, int slice) {
      return own.place_of(strides, g, slice == 0 ? first : 0, slice == 0 ? last : 0);
    };
    finish_slices<Post, kWidth, kWords>(a.post, a.output, a.output_type(), place_of, sums);
  }
}

template <class Chains, class Element>
__device__ __forceinline__ void plain_rows(const WordsArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kWords = kPlainRowWords<Element>;
  const unsigned below = a.by_lanes.quotient_of_31_bits(threadIdx.x),
                 upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x - below * a.lanes);
  const long long row = static_cast<long long>(upper) * a.rows_per_block + below;
  if (row >= a.batch * a.channels) return;
  const unsigned tile = blockIdx.x - upper * static_cast<unsigned>(a.by_across.divisor);
  const PlainWords<Element> own(a, row, tile, lane);
  const Element* const from = own.row_of(a) + (own.start - own.shift);

  Word words[kWords][3];
  bool cut = false;
  // The middle words first: except at a warp's ends, they hold all that it needs.
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    cut |= own.exists(g) & !own.whole(g);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[g][1].lanes[i] = anything();
    load_lanes_if(own.whole(g), from + g * own.step + kWidth, words[g][1].lanes);
  }
  // A window that ends before the last word does not need it.
  const bool has_third = own.shift + kWidth + a.taps - 1 > 2 * kWidth;
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[g][0].lanes[i] = words[g][2].lanes[i] = anything();
    load_lanes_if(own.whole(g), from + g * own.step, words[g][0].lanes);
    load_lanes_if(own.whole(g) & has_third, from + g * own.step + 2 * kWidth, words[g][2].lanes);
  }
  T taps[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) taps[k] = k < a.taps ? a.tap(own.channel, k) : T(0);
  const T bias = a.bias_of(own.channel);

  T sums[kWords * kWidth];
#pragma unroll
  for (int g = 0; g < kWords; ++g) {
    Word window[2];
    shift_window<Element>(words[g], own.shift * static_cast<int>(sizeof(Element)), window);
    T values[2 * kWidth];
    unpack<Element>(window[0], values);
    unpack<Element>(window[1], values + kWidth);
    T* const sum = sums + g * kWidth;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] = bias;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (k >= a.taps) break;  // not a product with zero: the window may hold infinities
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum[j] = multiply_add(taps[k], values[k + j], sum[j]);
    }
  }
  const auto place_of = [&](const long long* strides, int g) {
    return own.place_of(strides, g, 0, own.whole(g) ? kWidth : 0);
  };
  finish_slices<typename Chains::Post, kWidth, kWords>(a.post, a.output, a.output_type(), place_of, sums);
  if (cut) convolve_cut_plain_words<typename Chains::Post>(a, row, tile, lane);
}

// Interpreted, there are no tensors in `post`; without a chain, loads use the interpreter's registers.
template <class Chains, class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kPlainRowBlocks)
    plain_rows_kernel(const __grid_constant__ WordsArguments<Element> a) {
  plain_rows<Chains>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::plain_rows, Element> {
  static Kernel<WordsArguments<Element>> of(const Conv1dParams& params) {
    return params.post.empty() ? plain_rows_kernel<NoChains, Element>
                               : plain_rows_kernel<InterpretedChains<Element, false>, Element>;
  }
};

}  // namespace sluice
