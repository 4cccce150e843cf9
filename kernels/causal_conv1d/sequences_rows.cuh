// Up to four taps, channels first: few_taps_rows by maps of where runs begin, which a block has for several channels.
// Inputs of other runs count as zeros. What looks back at a history is computed once more by the thread in whose word
// the run begins, also where it lies in the next word, whose thread leaves it out:
//
//   words         |a a a a a a b b|b b b b b b b b|
//   first word's   x x x x x x h h h
//   next word's                      x x x x x x x
#pragma once

#include "kernels/causal_conv1d/run_maps.cuh"
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

// By the block's maps. A number for each of the thread's words, 0 where its window has one run. Bit i: a run begins
// i - 3 elements behind the word's begin. Bit 16 + j: output j has no sequence.
template <class Element>
class RunsOfWords {
 public:
  static constexpr bool kLoadsHistory = false;
  // What is never written would be kept from turn to turn of a block.
  __device__ __forceinline__ static std::uint32_t not_loaded() { return 0; }

  __device__ __forceinline__ RunsOfWords(const SequencesArguments<Element>& a, const WordsOfRow<Element>& words) {
    const RunMaps<Element>& maps = run_maps<Element>();
    const Sequences& s = a.sequences;
    const int padding = static_cast<int>(a.padding);
    const unsigned behind = (1u << kBack) - (1u << (kBack + 1 - padding));  // where a history is looked back at
    const bool moves = s.moves_in_place(), is_packed = s.is_packed();
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) cuts_[g] = 0;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) {
      const int at = words.begin + g * words.step;
      if (g >= a.vectors_per_thread || at >= a.length) break;
      const typename RunMaps<Element>::Window window = maps.at(at - kBack);
      cuts_[g] = (window.begins & kCuts) | ((window.zeros & kOwn) >> kBack) << 16;
      const bool is_left = (window.histories & behind) != 0;
      const bool leaves_state = moves && (is_packed ? (window.begins & kOwn) != 0 : at <= 0);
      if (is_left) left_ |= 1u << g;
      if (is_left | leaves_state | ((window.histories & kOwn) != 0)) left_ |= kHasWork;
    }
    unsigned cut_words = left_ & ~kHasWork;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) cut_words |= static_cast<unsigned>(cuts_[g] != 0) << g;
    cut_words_ = __reduce_or_sync(__activemask(), cut_words);
  }
  // Whether one of the warp's words is: a warp that took both ways would take the time of both.
  __device__ __forceinline__ bool is_cut(int g) const { return ((cut_words_ >> g) & 1) != 0; }
  __device__ __forceinline__ bool are_cut() const { return cut_words_ != 0; }
  // Whether output j reaches back so far within its run.
  __device__ __forceinline__ bool reaches(int g, int j, int back) const {
    const unsigned between = ((1u << back) - 1u) << (j + kBack + 1 - back);
    return (cuts_[g] & between) == 0;
  }
  __device__ __forceinline__ bool is_zero(int g, int j) const { return ((cuts_[g] >> (16 + j)) & 1) != 0; }
  // Whether none of the word's outputs is written but by finish().
  __device__ __forceinline__ bool is_left(int g) const { return ((left_ >> g) & 1) != 0; }
  __device__ __forceinline__ bool are_any() const { return left_ >= kHasWork; }

  template <class Post>
  __device__ __forceinline__ void finish(const SequencesArguments<Element>& a, unsigned row, int first_word,
                                         unsigned done) const {
    finish_words<Post>(a, row, first_word, done);
  }

 private:
  static constexpr int kWidth = kWordElements<Element>, kBack = kFewTaps - 1;
  // Of a window that begins kBack positions before a word: the word's own positions, and those that its outputs do not
  // look across where a run begins there.
  static constexpr unsigned kOwn = ((1u << kWidth) - 1u) << kBack, kCuts = (1u << (kBack + kWidth)) - 2u;

  static constexpr unsigned kHasWork = 1u << 31;

  unsigned cuts_[kFewTapsWords<Element>];
  unsigned left_ = 0;   // a bit a word, and kHasWork
  unsigned cut_words_;  // a bit a word
};

// A block takes the rows of several channels, `turns` of them one after another.
template <class Chains, class Element>
__global__ void __launch_bounds__(kFewTapsThreads, sizeof(Element) == 2 ? 6 : 4)  // more blocks would spill
    sequences_rows_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  const unsigned upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const int tile = static_cast<int>(blockIdx.x - upper * static_cast<unsigned>(a.by_across.divisor));
  const unsigned batch = a.by_groups.quotient_of_31_bits(upper);
  const unsigned group = upper - batch * static_cast<unsigned>(a.by_groups.divisor);
  run_maps<Element>().fill(a, batch, tile);
  const unsigned channels = static_cast<unsigned>(a.channels), first_row = batch * channels;
#pragma unroll 1
  for (int turn = 0; turn < a.turns; ++turn) {
    const unsigned row = first_row + (group * a.turns + turn) * a.rows_per_block;
    few_taps_rows<Chains, RunsOfWords<Element>>(a, row, first_row + channels, tile);
  }
}

// The history of a row, of its own dtype.
template <class Element>
struct RowWithHistory : RowEnds {
  using RowEnds::RowEnds;
  static constexpr bool kLoadsHistory = true;

  __device__ __forceinline__ static void load_history(const SequencesArguments<Element>& a,
                                                      const WordsOfRow<Element>& words, Quad<Element>& before) {
    if (words.begin != 0 || !a.history.exists()) return;
    const long long* const strides = a.history.strides;
    const Element* const history =
        a.history.template as<const Element>() + words.batch * strides[0] + words.channel * strides[1];
    float values[4] = {};
#pragma unroll
    for (int i = 0; i < kFewTaps - 1; ++i) values[i + 1] = convert<float>(history[i * strides[2]]);
    before = Quad<Element>::of(values);
  }
};

// Sequences that are rows, whose states do not move where they are: what precedes a row is the convolution's own
// history, and blocks behind the tiles' have the states.
template <class Chains, class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    rows_and_states_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  few_taps_rows<Chains, RowWithHistory<Element>>(a);
}

}  // namespace sluice
