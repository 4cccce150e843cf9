// Stores a warpgroup's combined epilogue tiles, 32 channels by 64 positions, to unaligned rows of positions. Of results
// that interleave (interleaved.cuh) a row is 64 results of a channel.
//
//   shared memory   |0 1 2 3 4 5 6 7|8 9 ..                      |56 ..       63|   swizzled, 128 bytes a channel
//   result      ..|       0 1 2|3 4 5 6 7 8 9 ..|           .. 58|59 60 61 62 63 ..|
//                     edge       a whole word a lane               edge
//
// Eight lanes share a channel, and a lane has two channels, whose addresses stay in registers. Both are loaded before
// the first is stored, because the warp has no other work to hide the latency.
#pragma once

#include "kernels/operators/conv1d/dense/policy.h"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/mma/swizzle.h"

namespace sluice {

// Keeps a value in a register: the compiler would recompute it at each use, because the sums take most registers.
template <class T>
__device__ __forceinline__ T kept(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    asm volatile("" : "+r"(value));
  } else {
    asm volatile("" : "+l"(value));
  }
  return value;
}

template <class Element>
class UnalignedRows {
 public:
  static constexpr int kPositions = 64, kRowBytes = kPositions * 2, kBytes = kEpilogueColumns * kRowBytes;
  static_assert(sizeof(Element) == 2);

  // `start_of(row)`: the first element of a row of the first tile. Steps between tiles are multiples of 16 bytes.
  template <class StartOf>
  __device__ __forceinline__ UnalignedRows(int warp, int lane, const StartOf& start_of)
      : lane_(lane), first_row_(warp * 8 + lane / kLanes) {
    const int own = lane % kLanes, row = first_row_ % kLanes;
    const int matrix_row = lane % 8 + lane / 16 * 8, matrix_word = warp * 2 + lane / 8 % 2;
    matrix_ = kept(matrix_row * kRowBytes + (matrix_word ^ lane % 8) * kWordBytes);
    low_ = kept(first_row_ * kRowBytes + (own ^ row) * kWordBytes);
    high_ = kept(first_row_ * kRowBytes + ((own + 1) % kLanes ^ row) * kWordBytes);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Element* const first = start_of(first_row_ + r * kStep);
      const int head = static_cast<int>((0 - reinterpret_cast<std::uintptr_t>(first) / sizeof(Element)) % kElements);
      const bool is_head = own < head;
      heads_[r] = kept(head);
      words_[r] = kept(reinterpret_cast<std::uintptr_t>(first + head + own * kElements));
      edges_[r] = kept(row_byte(r, is_head ? 0 : kLanes - 1) + own * 2);
      from_word_to_edge_[r] = kept((is_head ? 0 : kPositions - kElements) - head - own * (kElements - 1));
    }
  }

  // Byte offset in the tile at which this lane stores its row of matrices `call`.
  __device__ __forceinline__ int matrix(int call) const { return matrix_ + call * 16 * kRowBytes; }

  // Stores the tile at shared address `from`, `step` elements after the first tile.
  __device__ __forceinline__ void store(std::uint32_t from, long long step, int channels_left,
                                        int positions_left) const {
    if (positions_left < kPositions) return store_elements(from, step, channels_left, positions_left);
    Word words[2];
    std::uint16_t edges[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::uint32_t low = r == 0 ? low_ : fourth_row(low_), high = r == 0 ? high_ : fourth_row(high_);
      words[r] = shift_words(load_shared_word(from + low), load_shared_word(from + high), heads_[r] * 2);
      edges[r] = load_element(from + edges_[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool exists = first_row_ + r * kStep < channels_left;
      auto* const word = reinterpret_cast<Element*>(words_[r]) + step;
      store_word_if(exists && (lane_ % kLanes < kLanes - 1 || heads_[r] == 0), word, words[r]);
      if (exists && heads_[r] != 0) reinterpret_cast<std::uint16_t*>(word)[from_word_to_edge_[r]] = edges[r];
    }
  }

 private:
  static constexpr int kElements = kWordElements<Element>, kLanes = 8, kStep = 4;

  int lane_, first_row_;
  std::uint32_t matrix_, low_, high_, edges_[2];
  int heads_[2];  // elements before a row's first aligned word
  int from_word_to_edge_[2];
  std::uintptr_t words_[2];

  // The byte four rows further, from a row in the first half of its swizzle atom.
  __device__ __forceinline__ static std::uint32_t fourth_row(std::uint32_t byte) {
    return (byte ^ kStep * kWordBytes) + kStep * kRowBytes;
  }
  __device__ __forceinline__ std::uint32_t row_byte(int r, int word) const {
    const int row = first_row_ + r * kStep;
    return row * kRowBytes + (word ^ row % kLanes) * kWordBytes;
  }
  __device__ __forceinline__ static std::uint16_t load_element(std::uint32_t from) {
    return *static_cast<const std::uint16_t*>(__cvta_shared_to_generic(from));
  }

  // At the ends of rows: the warp's eight channels one after another, lanes along positions.
  __device__ __forceinline__ void store_elements(std::uint32_t from, long long step, int channels_left,
                                                 int positions_left) const {
    const int own = lane_ % kLanes;
#pragma unroll 1
    for (int i = 0; i < kLanes; ++i) {
      const int holder = i % kStep * kLanes, r = i / kStep;
      const std::uintptr_t word = __shfl_sync(0xffffffff, r == 0 ? words_[0] : words_[1], holder);
      const int head = __shfl_sync(0xffffffff, r == 0 ? heads_[0] : heads_[1], holder);
      const int row = first_row_ - lane_ / kLanes + i;
      auto* const to = reinterpret_cast<std::uint16_t*>(word) - head + step;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = half * 32 + lane_;
        const std::uint32_t byte = row * kRowBytes + (position / kElements ^ row % kLanes) * kWordBytes + own * 2;
        if (row < channels_left && position < positions_left) to[position] = load_element(from + byte);
      }
    }
  }
};

}  // namespace sluice
