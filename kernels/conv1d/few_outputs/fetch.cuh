// A lane's words of the input, zero where there is none of it, and the weights.
#pragma once

#include "kernels/conv1d/few_outputs/arguments.cuh"

namespace sluice {

// Eight neighbours of a run of `count` elements, from `first` on, which may lie partly or wholly outside of it.
template <class Element>
struct RunWord {
  const Element* run;
  int first, count;

  __device__ __forceinline__ bool exists() const { return first > -kWordElements<Element> && first < count; }
  __device__ __forceinline__ bool is_whole() const { return first >= 0 && first + kWordElements<Element> <= count; }
};

// Element by element: what lies at an end of the tensor's memory, where a whole word may not be read.
template <class Element>
__device__ __noinline__ Word gather_run(const Element* run, int first, int count) {
  return gather_elements<Element>([&](int i) {
    const int at = first + i;
    return at >= 0 && at < count ? run[at] : convert<Element>(0.0f);
  });
}

// Zeros outside of the run.
template <class Element>
__device__ __forceinline__ Word within_run(const RunWord<Element>& own, Word word) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int low = own.first + 2 * j, high = low + 1;
    word.lanes[j] &= (low >= 0 && low < own.count ? 0xffffu : 0u) | (high >= 0 && high < own.count ? 0xffff0000u : 0u);
  }
  return word;
}

// All loads of words before any is waited for. Words that begin at 16 bytes and lie in their run or outside of it:
template <class Element, class RunOf>
__device__ __forceinline__ void load_whole_words(const RunOf& run_of, Word (&words)[kFewOutputsWords]) {
#pragma unroll
  for (int i = 0; i < kFewOutputsWords; ++i) {
    const RunWord<Element> own = run_of(i);
    words[i] = Word{};
    load_lanes_if(own.exists(), own.run + own.first, words[i].lanes);
  }
}
// Words that begin anywhere: each from the two around it, a few at a time, for they take twice the registers.
template <class Element, class RunOf>
__device__ __forceinline__ void load_shifted_words(const FewOutputsArguments& a, const RunOf& run_of,
                                                   Word (&words)[kFewOutputsWords]) {
  constexpr int kAtOnce = kFewOutputsWords / 4, kWidth = kWordElements<Element>;
  const auto* const begin = a.input.as<const Element>();
  const Element* const end = begin + a.input_extent;
#pragma unroll
  for (int group = 0; group < kFewOutputsWords; group += kAtOnce) {
    Word behind[kAtOnce];
    int bytes[kAtOnce];
    bool is_readable[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const RunWord<Element> own = run_of(group + i);
      const Element* const at = own.run + own.first;
      bytes[i] = static_cast<int>(reinterpret_cast<std::uintptr_t>(at)) & (kWordBytes - 1);
      const Element* const low = at - bytes[i] / static_cast<int>(sizeof(Element));
      // A run that begins at a word needs nothing behind it, but what is asked for there is rare.
      is_readable[i] = low >= begin && low + 2 * kWidth <= end;
      const bool is_read = own.exists() && is_readable[i];
      words[group + i] = behind[i] = Word{};
      load_lanes_if(is_read, low, words[group + i].lanes);
      load_lanes_if(is_read && bytes[i] != 0, low + kWidth, behind[i].lanes);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const RunWord<Element> own = run_of(group + i);
      Word word = shift_words(words[group + i], behind[i], bytes[i]);
      if (own.exists() && !is_readable[i]) word = gather_run(own.run, own.first, own.count);
      if (!own.is_whole()) word = within_run(own, word);
      words[group + i] = word;
    }
  }
}

// `pre` on a word of the input, rounded to its type as transform would; what is none of it stays zero. `at` is of the
// word's first element, (batch, channel, position), of which the word's lie one behind another along `dimension`.
template <class Pre, class Element>
__device__ __forceinline__ Word apply_pre(const FewOutputsArguments& a, const Word& word, int batch, int channel,
                                          int position, int dimension, int first, int count) {
  const RunWord<Element> own{nullptr, first, count};
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
  return own.is_whole() ? changed : within_run(own, changed);
}
// Once, where that is much code.
template <class Pre, class Element>
__device__ __noinline__ Word apply_long_pre(const FewOutputsArguments& a, Word word, int batch, int channel,
                                            int position, int dimension, int first, int count) {
  return apply_pre<Pre, Element>(a, word, batch, channel, position, dimension, first, count);
}

// All weights to their places, zeros where there is none; read once by a block.
template <class Element, int Columns, bool ByPositions>
__device__ __forceinline__ void fetch_weights(const FewOutputsArguments& a, std::uint32_t to) {
  constexpr int kFragments = fragments_of_chunk(Columns);
  const auto* const weight = a.weight.as<const Element>();
  const int words = few_outputs_chunks(a.input_channels) * kFragments * 32;
#pragma unroll 1
  for (int w = static_cast<int>(threadIdx.x); w < words; w += kFewOutputsThreads) {
    const int fragment = w / 32 % kFragments, chunk = w / 32 / kFragments, lane = w % 32;
    const Word word = gather_elements<Element>([&](int e) {
      const WeightPlace place = weight_place(ByPositions, Columns, fragment, lane, e);
      const int input_channel = chunk * kFewOutputsChannels + place.channel;
      const int channel = static_cast<int>(a.by_taps.quotient_of_31_bits(place.column));
      const int tap = place.column - channel * a.taps;
      const bool exists = channel < a.channels && input_channel < a.input_channels;
      return exists ? weight[channel * a.weight.strides[0] + input_channel * a.weight.strides[1] +
                             tap * a.weight.strides[2]]
                    : convert<Element>(0.0f);
    });
    store_shared_word(to + w * kWordBytes, word);
  }
}

}  // namespace sluice
