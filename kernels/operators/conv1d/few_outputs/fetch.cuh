// A lane's words of the input, zero outside of it, and the weights.
#pragma once

#include "kernels/operators/conv1d/few_outputs/arguments.cuh"

namespace sluice {

// Eight contiguous elements from `first` on, some or all of which may be outside of a span of `count` elements.
template <class Element>
struct SpanWord {
  const Element* span;
  int first, count;

  __device__ __forceinline__ bool exists() const { return first > -kWordElements<Element> && first < count; }
  __device__ __forceinline__ bool is_whole() const { return first >= 0 && first + kWordElements<Element> <= count; }
};

// Element by element, at an end of the tensor's memory, where a whole word may not be read.
template <class Element>
__device__ __noinline__ Word gather_span(const Element* span, int first, int count) {
  return gather_elements<Element>([&](int i) {
    const int at = first + i;
    return at >= 0 && at < count ? span[at] : convert<Element>(0.0f);
  });
}

// Zeros elements outside of the span.
template <class Element>
__device__ __forceinline__ Word within_span(const SpanWord<Element>& own, Word word) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int low = own.first + 2 * j, high = low + 1;
    word.lanes[j] &= (low >= 0 && low < own.count ? 0xffffu : 0u) | (high >= 0 && high < own.count ? 0xffff0000u : 0u);
  }
  return word;
}

// All loads are issued before the first use. Aligned words, each inside or outside of its span as a whole:
template <class Element, class SpanOf>
__device__ __forceinline__ void load_whole_words(const SpanOf& span_of, Word (&words)[kFewOutputsWords]) {
#pragma unroll
  for (int i = 0; i < kFewOutputsWords; ++i) {
    const SpanWord<Element> own = span_of(i);
    words[i] = Word{};
    load_lanes_if(own.exists(), own.span + own.first, words[i].lanes);
  }
}
// Unaligned words: each from two aligned words, a few at a time, because they take twice the registers.
template <class Element, class SpanOf>
__device__ __forceinline__ void load_shifted_words(const FewOutputsArguments& a, const SpanOf& span_of,
                                                   Word (&words)[kFewOutputsWords]) {
  constexpr int kAtOnce = kFewOutputsWords / 4, kWidth = kWordElements<Element>;
  const auto* const begin = a.input.as<const Element>();
  const Element* const end = begin + a.input_extent;
#pragma unroll
  for (int begun = 0; begun < kFewOutputsWords; begun += kAtOnce) {
    Word next[kAtOnce];
    int bytes[kAtOnce];
    bool is_readable[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const SpanWord<Element> own = span_of(begun + i);
      const Element* const at = own.span + own.first;
      bytes[i] = static_cast<int>(reinterpret_cast<std::uintptr_t>(at)) & (kWordBytes - 1);
      const Element* const low = at - bytes[i] / static_cast<int>(sizeof(Element));
      // An aligned word needs no second word, but not being readable for that reason is rare.
      is_readable[i] = low >= begin && low + 2 * kWidth <= end;
      const bool is_read = own.exists() && is_readable[i];
      words[begun + i] = next[i] = Word{};
      load_lanes_if(is_read, low, words[begun + i].lanes);
      load_lanes_if(is_read && bytes[i] != 0, low + kWidth, next[i].lanes);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const SpanWord<Element> own = span_of(begun + i);
      Word word = shift_words(words[begun + i], next[i], bytes[i]);
      if (own.exists() && !is_readable[i]) word = gather_span(own.span, own.first, own.count);
      if (!own.is_whole()) word = within_span(own, word);
      words[begun + i] = word;
    }
  }
}

// `pre` on a word of the input, rounded to its dtype as transform would; elements outside of the input stay zero. The
// word's first element is at (batch, channel, position), and its elements are contiguous along `dimension`.
template <class Pre, class Element>
__device__ __forceinline__ Word apply_pre(const FewOutputsArguments& a, const Word& word, int batch, int channel,
                                          int position, int dimension, int first, int count) {
  const SpanWord<Element> own{nullptr, first, count};
  const auto place_of = [&](const long long* strides, int) {
    return Place{.offset = batch * strides[0] + channel * strides[1] + position * strides[2],
                 .stride = strides[dimension],
                 .first = max_of(-first, 0),
                 .last = min_of(count - first, kFewOutputsPreWidth)};
  };
  float values[kFewOutputsPreWidth];
  unpack<Element>(word, values);
  run_chain<Pre, kFewOutputsPreWidth, 1>(a.pre, place_of, values);
  const Word changed = pack<Element>(values);
  return own.is_whole() ? changed : within_span(own, changed);
}
// Out of line, for long chains.
template <class Pre, class Element>
__device__ __noinline__ Word apply_long_pre(const FewOutputsArguments& a, Word word, int batch, int channel,
                                            int position, int dimension, int first, int count) {
  return apply_pre<Pre, Element>(a, word, batch, channel, position, dimension, first, count);
}

// All weights in fragment layout, zeros where there is none; each block reads them once.
template <class Element, int Columns, bool ByPositions>
__device__ __forceinline__ void fetch_weights(const FewOutputsArguments& a, std::uint32_t to) {
  constexpr int kFragments = fragments_of_k_block(Columns);
  const auto* const weight = a.weight.as<const Element>();
  const int words = few_outputs_k_blocks(a.input_channels) * kFragments * 32;
#pragma unroll 1
  for (int w = static_cast<int>(threadIdx.x); w < words; w += kFewOutputsThreads) {
    const int fragment = w / 32 % kFragments, k_block = w / 32 / kFragments, lane = w % 32;
    const Word word = gather_elements<Element>([&](int e) {
      const WeightFragment at = weight_fragment(ByPositions, Columns, fragment, lane, e);
      const int input_channel = k_block * kFewOutputsChannels + at.channel;
      const int channel = static_cast<int>(a.by_taps.quotient_of_31_bits(at.column));
      const int tap = at.column - channel * a.taps;
      const bool exists = channel < a.channels && input_channel < a.input_channels;
      return exists ? weight[channel * a.weight.strides[0] + input_channel * a.weight.strides[1] +
                             tap * a.weight.strides[2]]
                    : convert<Element>(0.0f);
    });
    store_shared_word(to + w * kWordBytes, word);
  }
}

}  // namespace sluice
