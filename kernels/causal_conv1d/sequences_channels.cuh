// Few taps, channels last: few_taps_channels, whose threads find the runs that begin among their positions. A run's
// first outputs look back at its history, and the state may be written where that was read. So the thread in whose
// positions a run begins has all of those outputs, also the ones that lie among the positions of the next:
//
//   positions      |. . . a a a a b|b b b b b b b b|b c c ...
//   thread 0's      x x x x x x x h h h                        h: looks back at the history
//   thread 1's                         x x x x x x
#pragma once

#include "kernels/causal_conv1d/inline_chains.cuh"
#include "kernels/causal_conv1d/states.cuh"
#include "kernels/conv1d/depthwise/few_taps_channels.cuh"

namespace sluice {

// The outputs that look back at a run's history, those without one where they lie behind the thread's positions, and
// states that move where they are. The last that a thread does, and a function of its own, so that the registers of
// neither count for the other.
template <class Chains, class Element>
__device__ __noinline__ void finish_runs(const SequencesArguments<Element>& a, long long row, int position, int end,
                                         unsigned begins, bool leaves_state, int channel) {
  using Pre = typename Chains::Pre;
  constexpr int kChannels = kFewTapsChannels, kBack = kFewTaps - 1;
  const Sequences& s = a.sequences;
  const int history = a.taps - 1;
  Element* const output = a.output.template as<Element>() + row * a.output.strides[0] + channel;
  float taps[kChannels][kFewTaps], bias[kChannels];
  load_channel_taps<Element>(a, channel, taps);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) bias[i] = a.bias_of(channel + i);
#pragma unroll 1
  for (unsigned left = begins; left != 0; left &= left - 1) {
    const int first = position + __ffs(static_cast<int>(left)) - 1;
    const SequenceRun run = run_at(s, row, first, a.length, history, first + history);
    const int last = static_cast<int>(min_of<long long>(run.last, first + history));
    if (run.has_history || last > end) {
      float window[2 * kBack][kChannels] = {};  // the history, and as many positions
      if (run.has_history) load_columns<kBack>(a, run.slot, channel, s.columns - history, history, window);
#pragma unroll
      for (int j = 0; j < kBack; ++j) {
        if (first + j >= last) break;
        float token[kChannels];
        quad_at<Pre>(a, row, channel, first + j).unpack_to(token);
#pragma unroll
        for (int r = 0; r < 2 * kBack; ++r) {
#pragma unroll
          for (int i = 0; i < kChannels; ++i) window[r][i] = r == history + j ? token[i] : window[r][i];
        }
      }
#pragma unroll
      for (int j = 0; j < kBack; ++j) {
        if (first + j >= last) break;
        float sums[kChannels];
#pragma unroll
        for (int i = 0; i < kChannels; ++i) sums[i] = bias[i];
#pragma unroll
        for (int k = 0; k < kFewTaps; ++k) {
          if (k >= a.taps) break;
#pragma unroll
          for (int i = 0; i < kChannels; ++i) sums[i] = multiply_add(taps[i][k], window[j + k][i], sums[i]);
        }
        const auto place_of = [&](const long long* strides, int) {
          return Place{row * strides[0] + channel * strides[1] + (first + j) * strides[2], strides[1], 0, kChannels, 0};
        };
        run_chain<typename Chains::Post, kChannels, 1>(a.post, place_of, sums);
        if (run.has_history || first + j >= end) {
          store_vector<Element, kChannels>(output + (first + j) * a.output.strides[2], sums);
        }
      }
    }
    if (s.is_packed() && s.moves_in_place()) keep_quad_state<Pre>(a, run, channel);
  }
  if (leaves_state) keep_quad_state<Pre>(a, state_run(a, row), channel);
}

// Of the positions of a thread, a bit for each. `HasIds`: of rows with int32 ids side by side, else of packed sequences
// or whole rows.
template <class Element, int Taps, int Positions, bool HasIds>
class RunsOfPositions {
 public:
  __device__ __forceinline__ RunsOfPositions(const SequencesArguments<Element>& a, int row, int position, int end)
      : row_(row), position_(position), end_(end) {
    const Sequences& s = a.sequences;
    if (!HasIds && s.is_packed()) {
      find_packed(a);
    } else if (s.slot_of(row) < 0) {
      zero_ = bits(position, end);
    } else if constexpr (HasIds) {
      find_ids(a);
    } else if (position < a.padding) {
      begin_at(0, a.padding, static_cast<int>(a.length));
    }
  }
  __device__ __forceinline__ bool are_any() const { return (begins_ | zero_) != 0 || skipped_ > 0; }
  __device__ __forceinline__ bool begins(int i) const { return ((begins_ >> i) & 1) != 0; }
  __device__ __forceinline__ bool is_skipped(int i) const { return i < skipped_; }
  __device__ __forceinline__ bool is_zero(int i) const { return ((zero_ >> i) & 1) != 0; }

  template <class Chains>
  __device__ __forceinline__ void finish(const SequencesArguments<Element>& a, int channel) const {
    const Sequences& s = a.sequences;
    const bool leaves_state = !s.is_packed() && s.moves_in_place() && position_ == 0 && s.slot_of(row_) >= 0;
    if (hangs_over_ || leaves_state || (begins_ != 0 && s.before.exists()))
      finish_runs<Chains>(a, row_, position_, end_, begins_, leaves_state, channel);
  }

 private:
  __device__ __forceinline__ unsigned bits(int first, int last) const {
    return last <= first ? 0u : (~0u >> (32 - (last - position_))) & (~0u << (first - position_));
  }
  // A run first .. last - 1 that has results here.
  __device__ __forceinline__ void begin_at(int first, long long history, int last) {
    const int plain = static_cast<int>(min_of<long long>(first + history, last));
    if (first >= position_) {
      begins_ |= bits(first, first + 1);
      hangs_over_ |= plain > end_;
    } else {
      skipped_ = max_of(plain - position_, 0);
    }
  }
  __device__ __forceinline__ void find_packed(const SequencesArguments<Element>& a) {
    const Sequences& s = a.sequences;
    long long n = sequence_at(s, position_);
    for (int t = position_; t < end_;) {
      const int last = static_cast<int>(n < s.count ? min_of(s.starts.at(n + 1), a.length) : a.length);
      if (n >= 0 && n < s.count && s.slot_of(n) >= 0) {
        begin_at(static_cast<int>(max_of(s.starts.at(n), 0LL)), a.padding, last);
      } else {
        zero_ |= bits(t, min_of(last, end_));
      }
      t = last;
      do ++n;
      while (n < s.count && s.starts.at(n + 1) <= t);
    }
  }
  __device__ __forceinline__ void find_ids(const SequencesArguments<Element>& a) {
    constexpr int kBack = Taps - 1;
    const Sequences& s = a.sequences;
    const int* const ids = static_cast<const int*>(s.ids.data) + row_ * s.ids.strides[0] + position_;
    const int back = min_of(static_cast<int>(a.padding), position_);
    int found[kBack + Positions];
#pragma unroll
    for (int i = 0; i < kBack + Positions; ++i) {
      const int at = i - kBack;
      found[i] = 0;
      if (at >= -back && position_ + at < end_) found[i] = ids[at];
    }
#pragma unroll
    for (int i = 0; i < Positions; ++i) {
      if (position_ + i >= end_) break;
      if (found[kBack + i] < 0) {
        zero_ |= 1u << i;
      } else if (position_ + i == 0 || found[kBack + i] != found[kBack + i - 1]) {
        begins_ |= 1u << i;
      }
    }
    if (begins_ != 0) hangs_over_ = position_ + 31 - __clz(begins_) + a.padding > end_;
    if (((begins_ | zero_) & 1) != 0) return;
    int before = 0;  // positions of the first one's run
    bool same = true;
#pragma unroll
    for (int i = 1; i <= kBack; ++i) {
      same &= i <= back && found[kBack - i] == found[kBack];
      before += same;
    }
    const int stop = __ffs(static_cast<int>(begins_ | zero_)) - 1;  // the next run's
    skipped_ = max_of(static_cast<int>(a.padding) - before, 0);
    if (stop > 0) skipped_ = min_of(skipped_, stop);
  }

  int row_, position_, end_;
  unsigned begins_ = 0, zero_ = 0;
  int skipped_ = 0;
  bool hangs_over_ = false;
};

template <class Element, class Shape, bool HasIds>
using RunsOf = RunsOfPositions<Element, Shape::kTaps, Shape::kPositions, HasIds>;

inline constexpr int kSequencesChannelBlocks = 10;  // 96 registers: more blocks would spill

// `pre` and `post` with tensors, whose quads are in flight with the inputs'.
template <class Element>
struct SequencesGatedShape : GatedShape<Element> {
  static constexpr bool kDilates = false;
};
template <bool HasIds, class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kGatedBlocks)
    sequences_gated_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  using Chains = GateChains<Element>;
  if (blockIdx.x >= a.tiles) return keep_states<typename Chains::Pre, kFewTapsChannels>(a, blockIdx.x - a.tiles);
  using Shape = SequencesGatedShape<Element>;
  few_taps_channels<Chains, Shape, RunsOf<Element, Shape, HasIds>>(a);
}

template <class Chains, bool HasIds, class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kSequencesChannelBlocks)
    sequences_channels_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  if (blockIdx.x >= a.tiles) return keep_states<NoChain, kFewTapsChannels>(a, blockIdx.x - a.tiles);
  using Shape = FewTapsShape<Element>;
  few_taps_channels<Chains, Shape, RunsOf<Element, Shape, HasIds>>(a);
}

}  // namespace sluice
