// Up to four taps, channels first: few_taps_rows, whose threads find the runs that begin in their words or shortly
// before them. Inputs of other runs count as zeros there. What looks back at a history is computed once more by the
// thread in whose word the run begins, also where it lies in the next word, whose thread leaves it out:
//
//   words         |a a a a a a b b|b b b b b b b b|
//   first word's   x x x x x x h h h
//   next word's                      x x x x x x x
#pragma once

#include "kernels/causal_conv1d/states.cuh"
#include "kernels/conv1d/depthwise/few_taps_rows.cuh"

namespace sluice {

// Outputs from .. to - 1 of a run: those of a word, and what follows it of the first ones of a run that begins in it.
template <class Post, class Element>
__device__ __forceinline__ void convolve_outputs(const SequencesArguments<Element>& a, const SequenceRun& run,
                                                 unsigned channel, int from, int to) {
  constexpr int kOutputs = kWordElements<Element> + 4, kWindow = kOutputs + kFewTaps - 1;
  static_assert(kOutputs >= kWordElements<Element> + kFewTaps - 2);
  const int history = a.taps - 1;
  const Element* const input =
      a.input.template as<const Element>() + run.row * a.input.strides[0] + channel * a.input.strides[1];
  float values[kWindow];
#pragma unroll
  for (int i = 0; i < kWindow; ++i) {
    const int position = from - history + i;
    Element element = convert<Element>(0.0f);
    if (position >= run.first && position < to) element = input[position];
    values[i] = convert<float>(element);
  }
  if (run.has_history && from < run.first + history) {
#pragma unroll
    for (int i = 0; i < kFewTaps - 1; ++i) {
      const int position = from - history + i;
      if (position < run.first) values[i] = history_at(a, run, channel, position);
    }
  }
  float sums[kOutputs];
  const float bias = a.bias_of(channel);
#pragma unroll
  for (int j = 0; j < kOutputs; ++j) sums[j] = bias;
#pragma unroll
  for (int k = 0; k < kFewTaps; ++k) {
    if (k >= a.taps) break;  // not a product with zero: the window may hold infinities
    const float tap = a.tap(channel, k);
#pragma unroll
    for (int j = 0; j < kOutputs; ++j) sums[j] = multiply_add(tap, values[k + j], sums[j]);
  }
  run_chain<Post, kOutputs, 1>(a.post, [](const long long*, int) { return Place{}; }, sums);  // without operands
  Element* const output =
      a.output.template as<Element>() + run.row * a.output.strides[0] + channel * a.output.strides[1];
#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    if (from + j < to) output[from + j] = convert<Element>(sums[j]);
  }
}

// The words whose bit in `done` is 0; of the others what looks back at a history; and states that move where they are.
// A function of its own and the last that a thread does, so that the registers of neither count for the other.
template <class Post, class Element>
__device__ __noinline__ void finish_words(const SequencesArguments<Element>& a, unsigned row, int first_word,
                                          unsigned done) {
  constexpr int kWidth = kWordElements<Element>;
  const WordsOfRow<Element> words(a, row, first_word);
  const unsigned channel = words.channel;
  Element* const output =
      a.output.template as<Element>() + words.batch * a.output.strides[0] + channel * a.output.strides[1];
#pragma unroll 1
  for (int g = 0; g < a.vectors_per_thread; ++g) {
    const int at = words.begin + g * words.step, last = min_of(at + kWidth, static_cast<int>(a.length));
    const bool is_done = ((done >> g) & 1) != 0;
    for_runs(
        a, words.batch, max_of(at, 0), last,
        [&](long long from, long long to) {
          for (long long t = is_done ? to : from; t < to; ++t) output[t] = convert<Element>(0.0f);
        },
        [&](const SequenceRun& run, long long from, long long to) {
          if (is_done) to = run.has_history && run.first == from ? min_of(to, from + a.padding) : from;
          if (from < to) convolve_outputs<Post>(a, run, channel, static_cast<int>(from), static_cast<int>(to));
        },
        [&](const SequenceRun& last_run) { keep_state<NoChain>(a, last_run, channel); });
  }
}

// `HasIds`: of rows with ids, else of packed sequences or whole rows. A number for each of the thread's words, 0 where
// its window has one run. Bit i: a run begins i - 3 elements behind the word's begin. Bit 16 + j: output j has no
// sequence.
template <class Element, bool HasIds>
class RunsOfWords {
 public:
  __device__ __forceinline__ RunsOfWords(const SequencesArguments<Element>& a, const WordsOfRow<Element>& words) {
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) cuts_[g] = 0;
    const Sequences& s = a.sequences;
    const bool is_packed = !HasIds && s.is_packed(), has_slot = is_packed || s.slot_of(words.batch) >= 0;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) {
      const int at = words.begin + g * words.step, last = min_of(at + kWidth, static_cast<int>(a.length));
      if (g >= a.vectors_per_thread || at >= last) break;
      if (!has_slot) {
        cuts_[g] = kAllZeros;
      } else if (is_packed) {
        find_packed(a, g, at, last);
      } else {
        if constexpr (HasIds) cuts_[g] = ids_of(a, words.batch, at, last);
        if (at < a.padding) begin_at(0, g, at, s.has_history(words.batch), s.moves_in_place(), a.padding);
      }
    }
  }
  __device__ __forceinline__ bool is_cut(int g) const { return cuts_[g] != 0; }
  __device__ __forceinline__ bool are_cut() const {
    unsigned any = left_;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) any |= cuts_[g];
    return any != 0;
  }
  // Whether output j reaches back so far within its run.
  __device__ __forceinline__ bool reaches(int g, int j, int back) const {
    const unsigned between = ((1u << back) - 1u) << (j + kBack + 1 - back);
    return (cuts_[g] & between) == 0;
  }
  __device__ __forceinline__ bool is_zero(int g, int j) const { return ((cuts_[g] >> (16 + j)) & 1) != 0; }
  // Whether none of the word's outputs is written but by finish().
  __device__ __forceinline__ bool is_left(int g) const { return ((left_ >> g) & 1) != 0; }
  __device__ __forceinline__ bool are_any() const { return has_work_; }

  template <class Post>
  __device__ __forceinline__ void finish(const SequencesArguments<Element>& a, unsigned row, int first_word,
                                         unsigned done) const {
    finish_words<Post>(a, row, first_word, done);
  }

 private:
  static constexpr int kWidth = kWordElements<Element>, kBack = kFewTaps - 1;
  static constexpr unsigned kAllZeros = ((1u << kWidth) - 1u) << 16;

  __device__ __forceinline__ void begin_at(int start, int g, int at, bool has_history, bool moves, long long padding) {
    const int place = start - at;
    if (start > 0 && place + kBack > 0) cuts_[g] |= 1u << (place + kBack);  // what precedes a row is 0 anyway
    if (place >= 0 || at < 0) {
      has_work_ |= has_history | moves;
    } else if (has_history && place + padding > 0) {
      left_ |= 1u << g;
      has_work_ = true;
    }
  }
  __device__ __forceinline__ void find_packed(const SequencesArguments<Element>& a, int g, int at, int last) {
    const Sequences& s = a.sequences;
    const int first = max_of(at, 0), from = max_of(first - kBack, 0);
    long long n = sequence_at(s, from);
    for (int t = from; t < last;) {
      const int stop = static_cast<int>(n < s.count ? min_of<long long>(s.starts.at(n + 1), last) : last);
      if (n >= 0 && n < s.count && s.slot_of(n) >= 0) {
        const long long start = max_of(s.starts.at(n), 0LL);
        if (start + kBack > at)
          begin_at(static_cast<int>(start), g, at, s.has_history(n), s.moves_in_place(), a.padding);
      } else if (stop > first) {
        cuts_[g] |= ((1u << (stop - at)) - (1u << (max_of(t, first) - at))) << 16;
      }
      t = stop;
      do ++n;
      while (n < s.count && s.starts.at(n + 1) <= t);
    }
  }
  __device__ __forceinline__ unsigned ids_of(const SequencesArguments<Element>& a, unsigned row, int at, int last) {
    const Indices& ids = a.sequences.ids;
    return ids.is_wide ? ids_of<long long>(ids, row, at, last) : ids_of<int>(ids, row, at, last);
  }
  template <class Index>
  __device__ __forceinline__ unsigned ids_of(const Indices& ids, unsigned row, int at, int last) {
    const Index* const own = static_cast<const Index*>(ids.data) + row * ids.strides[0] + at * ids.strides[1];
    Index found[kBack + kWidth];
#pragma unroll
    for (int i = 0; i < kBack + kWidth; ++i) {
      const int position = at + i - kBack;
      found[i] = 0;
      if (position >= 0 && position < last) found[i] = own[(i - kBack) * ids.strides[1]];
    }
    unsigned cuts = 0;
#pragma unroll
    for (int i = 0; i < kBack + kWidth; ++i) {
      const int position = at + i - kBack;
      if (position < 0 || position >= last) continue;
      if (i > 0 && position > 0 && found[i] != found[i - (i > 0)]) cuts |= 1u << i;
      if (i >= kBack && found[i] < 0) cuts |= 1u << (16 + i - kBack);
    }
    return cuts;
  }

  unsigned cuts_[kFewTapsWords<Element>];
  unsigned left_ = 0;
  bool has_work_ = false;
};

template <class Chains, bool HasIds, class Element>
__global__ void __launch_bounds__(kFewTapsThreads, sizeof(Element) == 2 ? 6 : 4)  // more blocks would spill
    sequences_rows_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  few_taps_rows<Chains, RunsOfWords<Element, HasIds>>(a);
}

// Sequences that are rows, whose states do not move where they are: what precedes a row is the convolution's own
// history, and blocks behind the tiles' have the states.
template <class Chains, class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    rows_and_states_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  few_taps_rows<Chains>(a);
}

}  // namespace sluice
