// Up to four taps, channels-first: few_taps_rows with bit maps of the subsequences' starts, which a block uses for
// several channels. Inputs of other subsequences count as zeros. Outputs that look back at a history are computed again
// by the thread in whose word the subsequence begins, also outputs in the next word, whose thread leaves them out:
//
//   words         |a a a a a a b b|b b b b b b b b|
//   first word's   x x x x x x h h h
//   next word's                      x x x x x x x
#pragma once

#include "kernels/operators/causal_conv1d/inline_chains.cuh"
#include "kernels/operators/causal_conv1d/states.cuh"
#include "kernels/operators/causal_conv1d/subsequence_maps.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps_rows.cuh"

namespace sluice {

// Outputs from .. to - 1 of a subsequence: a word's outputs, and following outputs that look back at a history that
// begins in the word.
template <class Post, class Element>
__device__ __forceinline__ void convolve_outputs(const SequencesArguments<Element>& a, const Subsequence& subsequence,
                                                 unsigned channel, int from, int to) {
  constexpr int kOutputs = kWordElements<Element> + 4, kWindow = kOutputs + kFewTaps - 1;
  static_assert(kOutputs >= kWordElements<Element> + kFewTaps - 2);
  const int history = a.taps - 1;
  const Element* const input =
      a.input.template as<const Element>() + subsequence.row * a.input.strides[0] + channel * a.input.strides[1];
  float values[kWindow];
#pragma unroll
  for (int i = 0; i < kWindow; ++i) {
    const int position = from - history + i;
    Element element = convert<Element>(0.0f);
    if (position >= subsequence.first && position < to) element = input[position];
    values[i] = convert<float>(element);
  }
  if (subsequence.has_history && from < subsequence.first + history) {
#pragma unroll
    for (int i = 0; i < kFewTaps - 1; ++i) {
      const int position = from - history + i;
      if (position < subsequence.first) values[i] = history_at(a, subsequence, channel, position);
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
      a.output.template as<Element>() + subsequence.row * a.output.strides[0] + channel * a.output.strides[1];
#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    if (from + j < to) output[from + j] = convert<Element>(sums[j]);
  }
}

// A row whose first and last subsequence are known from the block's maps.
template <class Element>
struct MappedRow {
  long long index;

  __device__ __forceinline__ static bool begins_at(long long first) {
    return first == subsequence_maps<Element>().first_of_row();
  }
  __device__ __forceinline__ static long long end() { return subsequence_maps<Element>().end_of_row(); }
};

// Words whose bit in `done` is 0; in the others, outputs that look back at a history; and states that are updated in
// place. Last in a thread, and a function of its own, so that registers are not live across both.
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
    for_subsequences(
        a, MappedRow<Element>{words.batch}, max_of(at, 0), last,
        [&](long long from, long long to) {
          for (long long t = is_done ? to : from; t < to; ++t) output[t] = convert<Element>(0.0f);
        },
        [&](const Subsequence& subsequence, long long from, long long to) {
          if (is_done) to = subsequence.has_history && subsequence.first == from ? min_of(to, from + a.padding) : from;
          if (from < to) convolve_outputs<Post>(a, subsequence, channel, static_cast<int>(from), static_cast<int>(to));
        },
        [&](const Subsequence& last_subsequence) { keep_state<NoChain>(a, last_subsequence, channel); });
  }
}

// By the block's maps. A number for each of the thread's words, 0 if its window is in one subsequence. Bit i: a
// subsequence begins i - 3 elements after the word's start. Bit 16 + j: output j has no sequence.
template <class Element>
class SubsequencesOfWords {
 public:
  static constexpr bool kLoadsHistory = false;
  // A constant: an uninitialised value would be kept live across the block's iterations.
  __device__ __forceinline__ static std::uint32_t not_loaded() { return 0; }

  __device__ __forceinline__ SubsequencesOfWords(const SequencesArguments<Element>& a,
                                                 const WordsOfRow<Element>& words) {
    const SubsequenceMaps<Element>& maps = subsequence_maps<Element>();
    const Sequences& s = a.sequences;
    const int padding = static_cast<int>(a.padding);
    const unsigned behind = (1u << kBack) - (1u << (kBack + 1 - padding));  // outputs that look back at a history
    const bool moves_packed = s.moves_in_place() && s.is_packed();
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) cuts_[g] = 0;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) {
      const int at = words.begin + g * words.step;
      if (g >= a.vectors_per_thread || at >= a.length) break;
      const typename SubsequenceMaps<Element>::Window window = maps.at(at - kBack);
      cuts_[g] = (window.begins & kCuts) | ((window.zeros & kOwn) >> kBack) << 16;
      const bool is_left = (window.histories & behind) != 0;
      const unsigned uses_state = window.histories | (moves_packed ? window.begins : 0u);
      if (is_left) left_ |= 1u << g;
      if (is_left | ((uses_state & kOwn) != 0)) left_ |= kHasWork;
    }
    unsigned cut_words = left_ & ~kHasWork;
#pragma unroll
    for (int g = 0; g < kFewTapsWords<Element>; ++g) cut_words |= static_cast<unsigned>(cuts_[g] != 0) << g;
    cut_words_ = __reduce_or_sync(__activemask(), cut_words);
  }
  // Whether one of the warp's words is cut: a warp that took both branches would take the time of both.
  __device__ __forceinline__ bool is_cut(int g) const { return ((cut_words_ >> g) & 1) != 0; }
  __device__ __forceinline__ bool are_cut() const { return cut_words_ != 0; }
  // Whether output j's tap `back` is within its subsequence.
  __device__ __forceinline__ bool reaches(int g, int j, int back) const {
    const unsigned between = ((1u << back) - 1u) << (j + kBack + 1 - back);
    return (cuts_[g] & between) == 0;
  }
  __device__ __forceinline__ bool is_zero(int g, int j) const { return ((cuts_[g] >> (16 + j)) & 1) != 0; }
  // Whether only finish() writes the word's outputs.
  __device__ __forceinline__ bool is_left(int g) const { return ((left_ >> g) & 1) != 0; }
  __device__ __forceinline__ bool are_any() const { return left_ >= kHasWork; }

  template <class Post>
  __device__ __forceinline__ void finish(const SequencesArguments<Element>& a, unsigned row, int first_word,
                                         unsigned done) const {
    finish_words<Post>(a, row, first_word, done);
  }

 private:
  static constexpr int kWidth = kWordElements<Element>, kBack = kFewTaps - 1;
  // In a window that begins kBack positions before a word: the word's own positions, and the starts that cut its
  // outputs' windows.
  static constexpr unsigned kOwn = ((1u << kWidth) - 1u) << kBack, kCuts = (1u << (kBack + kWidth)) - 2u;

  static constexpr unsigned kHasWork = 1u << 31;

  unsigned cuts_[kFewTapsWords<Element>];
  unsigned left_ = 0;   // a bit a word, and kHasWork
  unsigned cut_words_;  // a bit a word
};

// A block takes the rows of several channels, in `iterations` steps.
template <class Element>
__global__ void __launch_bounds__(kFewTapsThreads, sizeof(Element) == 2 ? 6 : 4)  // with more blocks it would spill
    sequences_rows_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  using Chains = SiluAtMostChains<Element>;
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  const unsigned upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const int tile = static_cast<int>(blockIdx.x - upper * static_cast<unsigned>(a.by_across.divisor));
  const unsigned batch = a.by_channel_blocks.quotient_of_31_bits(upper);
  const unsigned channel_block = upper - batch * static_cast<unsigned>(a.by_channel_blocks.divisor);
  subsequence_maps<Element>().fill(a, batch, tile);
  const unsigned channels = static_cast<unsigned>(a.channels), first_row = batch * channels;
#pragma unroll 1
  for (int iteration = 0; iteration < a.iterations; ++iteration) {
    const unsigned row = first_row + (channel_block * a.iterations + iteration) * a.rows_per_block;
    few_taps_rows<Chains, SubsequencesOfWords<Element>>(a, row, first_row + channels, tile);
  }
}

// The history of a row, in its own dtype.
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

// Sequences that are whole rows, whose states are not updated in place: what precedes a row is the convolution's own
// history, and blocks after the tiles' compute the states.
template <class Element>
__global__ void __launch_bounds__(kFewTapsThreads, kFewTapsRowBlocks<Element>)
    rows_and_states_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  using Chains = SiluAtMostChains<Element>;
  if (blockIdx.x >= a.tiles) return keep_states<NoChain>(a, blockIdx.x - a.tiles);
  few_taps_rows<Chains, RowWithHistory<Element>>(a);
}

}  // namespace sluice
