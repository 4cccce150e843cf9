// Bit maps in shared memory, a bit a position: the starts of subsequences among a block's positions of an input's row.
// A block uses them for several channels: searching, or reading ids, for each word would take longer than its sums.
//
//   positions   . . a a a a a b b b c c c c c . .      a, c: with a history; b: without a slot, or a negative id
//   begins      0 0 1 0 0 0 0 ? 0 0 1 0 0 0 0 ? 0
//   histories   0 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0
//   zeros       1 1 0 0 0 0 0 1 1 1 0 0 0 0 0 1 1
//
// In rows, with ids or without, `histories` marks the first subsequence alone: also without a history if the state is
// updated in place.
#pragma once

#include "kernels/operators/causal_conv1d/subsequences.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps.cuh"

namespace sluice {

template <class Element>
class SubsequenceMaps {
 public:
  // 32 positions, the first position in the lowest bit.
  struct Window {
    unsigned begins, histories, zeros;
  };

  // By all threads of the block, for a tile of a row.
  __device__ __forceinline__ void fill(const SequencesArguments<Element>& a, long long row, int tile) {
    const int positions = a.vectors_per_thread * a.lanes * kWidth, first = tile * positions - kAhead;
    for (int i = threadIdx.x; i < (positions + kAhead) / 32 + 2; i += blockDim.x) {
      begins_[i] = histories_[i] = zeros_[i] = 0;
    }
    if (threadIdx.x == 0) {
      first_ = first;
      candidate_ = first_of_row_ = kNowhere;
    }
    __syncthreads();
    const Sequences& s = a.sequences;
    const int from = max_of(first, 0), to = min_of(tile * positions + positions, static_cast<int>(a.length));
    if (s.is_packed()) {
      fill_packed(s, from, to);
    } else if (s.slot_of(row) < 0) {
      if (threadIdx.x == 0) set_zeros(from, to);
    } else {
      const bool has_ids = s.ids.exists(), uses_state = s.has_history(row) || s.moves_in_place();
      if (threadIdx.x == 0 && from == 0) set_begin(0, uses_state && !has_ids);
      if (has_ids) s.ids.is_wide ? fill_ids<long long>(s.ids, row, from, to) : fill_ids<int>(s.ids, row, from, to);
      if (has_ids && uses_state) set_first_of_row(s, row, from, a.length);
    }
    __syncthreads();
  }
  __device__ __forceinline__ Window at(int position) const {
    const int bit = position - first_, lane = bit >> 5;
    const auto bits = [=](const unsigned* map) { return __funnelshift_r(map[lane], map[lane + 1], bit & 31); };
    return {bits(begins_), bits(histories_), bits(zeros_)};
  }
  // For a row with ids whose state is used: where the row's first subsequence begins, if here. For a state that is
  // updated in place: where the row's last subsequence ends.
  __device__ __forceinline__ int first_of_row() const { return first_of_row_; }
  __device__ __forceinline__ int end_of_row() const { return end_of_row_; }

 private:
  static constexpr int kWidth = kWordElements<Element>, kSome = 4, kNowhere = 1 << 30;
  // A tile's first word, and its window, may begin before the tile. Rounded so that quads of ids stay quads.
  static constexpr int kAhead = round_up(kWidth - 1 + kFewTaps - 1, kSome);
  static constexpr int kPositions = kFewTapsThreads * kFewTapsWords<Element> * kWidth + kAhead;
  static constexpr int kLanes = kPositions / 32 + 2;  // a window reads two lanes

  __device__ __forceinline__ void fill_packed(const Sequences& s, int from, int to) {
    for (long long n = sequence_at(s, from) + threadIdx.x; n <= s.count; n += blockDim.x) {
      const long long start = n < 0 ? from : max_of(s.starts.at(n), 0LL);
      if (start >= to) break;
      const long long stop = n < s.count ? s.starts.at(n + 1) : to, begin = max_of<long long>(start, from);
      if (stop <= begin) continue;
      if (n < 0 || n >= s.count || s.slot_of(n) < 0) {
        set_zeros(static_cast<int>(begin), static_cast<int>(min_of<long long>(stop, to)));
      } else if (start >= from) {
        set_begin(static_cast<int>(start), s.has_history(n));
      }
    }
  }
  template <class Index>
  __device__ __forceinline__ void fill_ids(const Indices& ids, long long row, int from, int to) {
    const Index* const own = static_cast<const Index*>(ids.data) + row * ids.strides[0];
    const bool has_quads =
        sizeof(Index) == 4 && ids.strides[1] == 1 && reinterpret_cast<std::uintptr_t>(own) % sizeof(int4) == 0;
    for (int at = from + kSome * threadIdx.x; at < to; at += kSome * blockDim.x) {
      const Index before = at > 0 ? own[(at - 1) * ids.strides[1]] : -1;
      Index found[kSome];
      if (has_quads && at + kSome <= to) {
        const int4 quad = *reinterpret_cast<const int4*>(own + at);
        found[0] = quad.x, found[1] = quad.y, found[2] = quad.z, found[3] = quad.w;
      } else {
#pragma unroll
        for (int i = 0; i < kSome; ++i) found[i] = at + i < to ? own[(at + i) * ids.strides[1]] : 0;
      }
      unsigned begins = 0, zeros = 0;
#pragma unroll
      for (int i = 0; i < kSome; ++i) {
        begins |= static_cast<unsigned>(at + i > 0 && found[i] != (i == 0 ? before : found[i - (i > 0)])) << i;
        zeros |= static_cast<unsigned>(found[i] < 0) << i;
      }
      set_bits(begins_, at, begins);
      set_bits(zeros_, at, zeros);
      const unsigned after_none = ~zeros & (zeros << 1 | static_cast<unsigned>(before < 0));
      const unsigned candidates = after_none & ((1u << min_of(to - at, kSome)) - 1);
      if (candidates != 0) atomicMin(&candidate_, at + __ffs(static_cast<int>(candidates)) - 1);
    }
  }
  // After fill_ids, by a warp: the row's first subsequence is the candidate unless a subsequence precedes `from`.
  __device__ __forceinline__ void set_first_of_row(const Sequences& s, long long row, int from, long long length) {
    __syncthreads();
    const int candidate = candidate_;
    if (candidate == kNowhere || threadIdx.x >= 32 || end_of_sequences(s.ids, row, from) > 0) return;
    const long long end = s.moves_in_place() ? end_of_sequences(s.ids, row, length) : 0;
    if (threadIdx.x != 0) return;
    set_bits(histories_, candidate, 1);
    first_of_row_ = candidate;
    end_of_row_ = static_cast<int>(end);
  }
  __device__ __forceinline__ void set_begin(int position, bool has_history) {
    set_bits(begins_, position, 1);
    if (has_history) set_bits(histories_, position, 1);
  }
  // Bits within one lane.
  __device__ __forceinline__ void set_bits(unsigned* map, int position, unsigned bits) {
    const int bit = position - first_;
    if (bits != 0) atomicOr(map + (bit >> 5), bits << (bit & 31));
  }
  __device__ __forceinline__ void set_zeros(int from, int to) {
    for (int bit = from - first_; bit < to - first_;) {
      const int end = min_of((bit | 31) + 1, to - first_), count = end - bit;
      atomicOr(zeros_ + (bit >> 5), (~0u >> (32 - count)) << (bit & 31));
      bit = end;
    }
  }

  unsigned begins_[kLanes], histories_[kLanes], zeros_[kLanes];
  int first_;      // position of the first bit
  int candidate_;  // begin of the first subsequence here that follows a negative id or the row's start
  int first_of_row_, end_of_row_;
};

// The block's maps.
template <class Element>
__device__ __forceinline__ SubsequenceMaps<Element>& subsequence_maps() {
  __shared__ SubsequenceMaps<Element> maps;
  return maps;
}

}  // namespace sluice
