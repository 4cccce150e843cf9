// Few taps, channels-last: few_taps_channels, whose threads find the subsequences that begin among their positions. A
// subsequence's first outputs look back at its history, and the final state may overwrite it. So they all belong to the
// thread in whose positions the subsequence begins, also outputs at positions of the next thread:
//
//   positions      |. . . a a a a b|b b b b b b b b|b c c ...
//   thread 0's      x x x x x x x h h h                        h: looks back at the history
//   thread 1's                         x x x x x x
//
// With ids the row's first subsequence has the history. It begins after a negative id or the row's start, and only a
// search tells whether a subsequence there is the first: finish_subsequences searches, and all of them are left to it.
#pragma once

#include "kernels/operators/causal_conv1d/inline_chains.cuh"
#include "kernels/operators/causal_conv1d/states.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps_channels.cuh"

namespace sluice {

// For subsequences that begin at `position` + the bits of `begins`: the outputs that look back at a history, and states
// that are updated in place. Last in a thread, and a function of its own, so that registers are not live across both.
template <class Chains, class Element>
__device__ __noinline__ void finish_subsequences(const SequencesArguments<Element>& a, long long row, int position,
                                                 unsigned begins, bool leaves_state, int channel) {
  using Pre = typename Chains::Pre;
  constexpr int kChannels = kFewTapsChannels, kBack = kFewTaps - 1;
  const Sequences& s = a.sequences;
  const SearchedRow searched{s, row, a.length};
  const int history = a.taps - 1;
  long long n = s.is_packed() ? sequence_at(s, position) : row;
  Element* const output = a.output.template as<Element>() + row * a.output.strides[0] + channel;
  float taps[kChannels][kFewTaps], bias[kChannels];
  load_channel_taps<Element>(a, channel, taps);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) bias[i] = a.bias_of(channel + i);
#pragma unroll 1
  for (unsigned left = begins; left != 0; left &= left - 1) {
    const int first = position + __ffs(static_cast<int>(left)) - 1;
    Subsequence subsequence;
    if (s.is_packed()) {
      while (s.starts.at(n + 1) <= first) ++n;
      subsequence = packed_subsequence(s, row, n, a.length);
    } else {
      subsequence = subsequence_at(s, searched, first, a.length, history, first + history);
    }
    if (s.has_history(n)) {
      const int last = static_cast<int>(min_of<long long>(subsequence.last, first + history));
      float window[2 * kBack][kChannels] = {};  // the history, and as many positions
      if (subsequence.has_history) load_columns<kBack>(a, subsequence.slot, channel, history, window);
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
        store_vector<Element, kChannels>(output + (first + j) * a.output.strides[2], sums);
      }
    }
    if (!s.moves_in_place()) continue;
    if (s.is_packed()) {
      keep_quad_state<Pre>(a, subsequence, channel);
    } else {
      leaves_state |= is_first_of_slot(s, searched, subsequence);
    }
  }
  if (leaves_state) keep_quad_state<Pre>(a, state_subsequence(a, row), channel);
}

// A bit for each position of a thread. `HasIds`: rows with contiguous int32 ids, else packed sequences or whole rows.
template <class Element, int Taps, int Positions, bool HasIds>
class SubsequencesOfPositions {
 public:
  __device__ __forceinline__ SubsequencesOfPositions(const SequencesArguments<Element>& a, int row, int position,
                                                     int end)
      : row_(row), position_(position), end_(end) {
    const Sequences& s = a.sequences;
    if (!HasIds && s.is_packed()) {
      find_packed(a);
    } else if (s.slot_of(row) < 0) {
      zero_ = bits(position, end);
    } else if constexpr (HasIds) {
      find_ids(a);
    } else if (position < a.padding && s.has_history(row)) {
      begin_at(0, static_cast<int>(a.padding), true, static_cast<int>(a.padding));
    }
  }
  __device__ __forceinline__ bool are_any() const { return (begins_ | zero_ | skipped_) != 0; }
  __device__ __forceinline__ bool begins(int i) const { return ((begins_ >> i) & 1) != 0; }
  __device__ __forceinline__ bool is_skipped(int i) const { return ((skipped_ >> i) & 1) != 0; }
  __device__ __forceinline__ bool is_zero(int i) const { return ((zero_ >> i) & 1) != 0; }
  __device__ __forceinline__ bool is_foreign(int r) const { return r < foreign_; }

  template <class Chains>
  __device__ __forceinline__ void finish(const SequencesArguments<Element>& a, int channel) const {
    const Sequences& s = a.sequences;
    const bool is_row = !HasIds && !s.is_packed();
    const bool leaves_state = is_row && s.moves_in_place() && position_ == 0 && s.slot_of(row_) >= 0;
    if (finished_ != 0 || leaves_state)
      finish_subsequences<Chains>(a, row_, position_, finished_, leaves_state, channel);
  }

 private:
  __device__ __forceinline__ unsigned bits(int first, int last) const {
    return last <= first ? 0u : (~0u >> (32 - (last - position_))) & (~0u << (first - position_));
  }
  // A subsequence with results here, from `first` on; results before `history_end` look back at its history.
  __device__ __forceinline__ void begin_at(int first, int history_end, bool is_finished, int padding) {
    if (first >= position_) {
      begins_ |= bits(first, first + 1);
      if (is_finished) finished_ |= bits(first, first + 1);
    } else {
      foreign_ = max_of(first + padding - position_, 0);
    }
    skipped_ |= bits(max_of(first, position_), min_of(history_end, end_));
  }
  __device__ __forceinline__ void find_packed(const SequencesArguments<Element>& a) {
    const Sequences& s = a.sequences;
    const int padding = static_cast<int>(a.padding);
    long long n = sequence_at(s, position_);
    for (int t = position_; t < end_;) {
      const int last = static_cast<int>(n < s.count ? min_of(s.starts.at(n + 1), a.length) : a.length);
      if (n >= 0 && n < s.count && s.slot_of(n) >= 0) {
        const int first = static_cast<int>(max_of(s.starts.at(n), 0LL));
        const bool has_history = s.has_history(n);
        begin_at(first, has_history ? min_of(first + padding, last) : 0, has_history || s.moves_in_place(), padding);
      } else {
        zero_ |= bits(t, min_of(last, end_));
      }
      t = last;
      do ++n;
      while (n < s.count && s.starts.at(n + 1) <= t);
    }
  }
  __device__ __forceinline__ void find_ids(const SequencesArguments<Element>& a) {
    constexpr int kQuad = 4;
    static_assert(Taps - 1 <= kQuad);
    const Sequences& s = a.sequences;
    const int* const ids = static_cast<const int*>(s.ids.data) + row_ * s.ids.strides[0] + position_;
    const int padding = static_cast<int>(a.padding), back = min_of(padding, position_);
    int found[kQuad + Positions];  // the first is that of position - kQuad
    const bool is_whole = reinterpret_cast<std::uintptr_t>(ids) % sizeof(int4) == 0 && position_ >= kQuad &&
                          position_ + Positions <= a.length;
    if (is_whole) {
#pragma unroll
      for (int i = 0; i < kQuad + Positions; i += kQuad) {
        const int4 quad = *reinterpret_cast<const int4*>(ids + i - kQuad);
        found[i] = quad.x;
        found[i + 1] = quad.y;
        found[i + 2] = quad.z;
        found[i + 3] = quad.w;
      }
      int differing = 0;
#pragma unroll
      for (int i = 1; i < kQuad + Positions; ++i) differing |= found[i] ^ found[0];
      if (differing == 0 && found[0] >= 0) return;
    } else {
#pragma unroll
      for (int i = 0; i < kQuad + Positions; ++i) {
        const int at = i - kQuad;
        found[i] = -1;
        if (at >= -back && position_ + at < end_) found[i] = ids[at];
      }
    }
#pragma unroll
    for (int i = 0; i < Positions; ++i) {
      if (position_ + i >= end_) break;
      if (found[kQuad + i] < 0) {
        zero_ |= 1u << i;
      } else if (found[kQuad + i] != found[kQuad + i - 1]) {
        begins_ |= 1u << i;
      }
    }
    int before = 0;  // positions of the first position's subsequence
    bool same = true;
#pragma unroll
    for (int i = 1; i < Taps; ++i) {
      same &= i <= back && found[kQuad - i] == found[kQuad];
      before += same;
    }
    foreign_ = padding - before;
    if (s.before.exists()) find_finished(s, found, padding);
  }
  // By the ids of this thread's positions and of some before. Subsequences that begin after a negative id or the row's
  // start are left to finish_subsequences, with the outputs that would look back at a history.
  template <int Count>
  __device__ __forceinline__ void find_finished(const Sequences& s, const int (&found)[Count], int padding) {
    static_assert(Count <= 32);
    constexpr int kBefore = Count - Positions;
    unsigned first_ids = begins_ << kBefore, none = zero_ << kBefore;
#pragma unroll
    for (int i = 1; i < kBefore; ++i) {
      none |= static_cast<unsigned>(found[i] < 0) << i;
      first_ids |= static_cast<unsigned>(found[i] >= 0 && found[i] != found[i - 1]) << i;
    }
    const unsigned after_none = first_ids & (none << 1);
    if (after_none == 0) return;
    const bool has_history = s.has_history(row_);
    if (has_history || s.moves_in_place()) finished_ = after_none >> kBefore;
    unsigned looking_back = after_none;  // outputs
#pragma unroll
    for (int k = 1; k < Taps - 1; ++k) {
      if (k < padding) looking_back |= (looking_back << 1) & ~(first_ids | none);
    }
    if (has_history) skipped_ = (looking_back >> kBefore) & bits(position_, end_);
  }

  int row_, position_, end_;
  unsigned begins_ = 0, zero_ = 0, skipped_ = 0;
  unsigned finished_ = 0;  // begins of subsequences left to finish_subsequences
  int foreign_ = 0;        // positions of another subsequence before the first position
};

template <class Element, class Shape, bool HasIds>
using SubsequencesOf = SubsequencesOfPositions<Element, Shape::kTaps, Shape::kPositions, HasIds>;

inline constexpr int kSequencesChannelBlocks = 10;  // 96 registers: with more blocks it would spill

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
  few_taps_channels<Chains, Shape, SubsequencesOf<Element, Shape, HasIds>>(a);
}

// Without `pre`, and with a SiLU at most as `post`.
template <bool HasIds, class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kSequencesChannelBlocks)
    sequences_channels_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  using Chains = SiluAtMostChains<Element>;
  if (blockIdx.x >= a.tiles) return keep_states<NoChain, kFewTapsChannels>(a, blockIdx.x - a.tiles);
  using Shape = FewTapsShape<Element>;
  few_taps_channels<Chains, Shape, SubsequencesOf<Element, Shape, HasIds>>(a);
}

}  // namespace sluice
