// A block's window positions in shared memory, after `pre`: rows of a k-block's channels. A quarter of a warp reads
// four words of two adjacent rows, which are in different banks.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/arguments.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/mma/tf32.h"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// Where a window position's words lie. Positions of a stride's residue follow each other, because frames read every
// stride-th.
struct WindowPlaces {
  int row_bytes, per_residue, of_row;  // places of a residue, and of a row

  __device__ explicit WindowPlaces(const ChunkArguments& a)
      : row_bytes(a.order.row_bytes()),
        per_residue((a.plan.window + a.stride - 1) / a.stride),
        of_row(per_residue * a.stride) {}
  __device__ int block_bytes(const ChunkArguments& a) const { return of_row * a.plan.rows * row_bytes; }
  // The place of a position in a row's window.
  __device__ int place(const ChunkArguments& a, int position) const {
    return position % a.stride * per_residue + position / a.stride;
  }
  __device__ int offset(int place, int word) const {
    const int twist = row_bytes == 128 ? (place & 1) * 4 : 0;
    return place * row_bytes + (word ^ twist) * kWordBytes;
  }
};

// Finds a block's rows, by its first threads; the others have to wait.
__device__ __forceinline__ void find_rows(const ChunkArguments& a, const ChunkItem& item, ChunkRow* rows) {
  const int own = static_cast<int>(threadIdx.x);
  if (own >= a.plan.rows) return;
  const long long row = item.first_row + own, slot = row < a.rows ? a.states.slot_of(row) : -1;
  rows[own] = {row, slot, slot >= 0 && a.spread == 0 && a.states.has_history(row)};
}

// Where a position's channels come from.
struct ChunkSource {
  const void* data = nullptr;  // null: zeros
  DType dtype = DType::float32;
  long long offset = 0, step = 0;  // offset of the first channel, step to the next
  bool is_changed = false;         // whether `pre` changes it: not what is before a row's first input

  __device__ __forceinline__ void take(const Operand<3>& tensor, long long i, long long channel, long long at) {
    data = tensor.data, dtype = tensor.dtype, step = tensor.strides[1], is_changed = true;
    offset = i * tensor.strides[0] + channel * tensor.strides[1] + at * tensor.strides[2];
  }
};

// `position`: of the input, negative before it.
__device__ __forceinline__ ChunkSource chunk_source(const ChunkArguments& a, const ChunkRow& from, long long position,
                                                    long long channel) {
  ChunkSource source;
  if (from.slot < 0 || position >= a.length) return source;
  if (position >= 0) {
    source.take(a.input, from.row, channel, position);
  } else if (a.spread > 0) {
    return source;
  } else if (from.continues) {
    source.take(a.states.before, from.slot, channel, a.states.columns + position);
  } else if (a.padding == Before::replicate) {
    source.take(a.input, from.row, channel, 0);
  } else if (a.padding == Before::reflect && -position < a.length) {
    source.take(a.input, from.row, channel, -position);
  }
  return source;
}

// A word of channels from `channel` on; channels that do not exist are zeros.
template <class Chain, class Element>
__device__ __forceinline__ void load_chunk_word(const ChunkArguments& a, const ChunkSource& source, long long row,
                                                int channel, float (&values)[kWordElements<Element>]) {
  constexpr int kElements = kWordElements<Element>;
  const int left = static_cast<int>(a.input_channels) - channel;
#pragma unroll
  for (int i = 0; i < kElements; ++i) values[i] = 0.0f;
  if (source.data != nullptr) {
    if (a.words && source.data == a.input.data && left >= kElements) {
      unpack<Element>(load_word(static_cast<const Element*>(source.data) + source.offset), values);
    } else {
      with_element_type(source.dtype, [&](auto* tag) {
        const auto* const from = static_cast<decltype(tag)>(source.data) + source.offset;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          if (i < left) values[i] = convert<float>(convert<Element>(convert<float>(from[i * source.step])));
        }
      });
    }
  }
  if constexpr (!std::is_same_v<Chain, NoChain>) {
    if (!source.is_changed || Chain{a.pre}.empty()) return;
    run_chain<Chain, kElements, 1>(
        a.pre,
        [&](const long long* strides, int) {
          return Place{row * strides[0] + channel * strides[1], strides[1], 0, max_of(0, min_of(left, kElements)), 0};
        },
        values);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = i < left ? convert<float>(convert<Element>(values[i])) : 0.0f;
  }
}

// Stores a word as the products take it: float32 rounded to TF32, or as its high and its low part.
template <bool IsSplit, class Element>
__device__ __forceinline__ void store_chunk_word(char* to, int low, const float (&values)[kWordElements<Element>]) {
  if constexpr (std::is_same_v<Element, float>) {
    Word high, rest;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const SplitFloat parts = parts_of_float(__float_as_uint(values[i]), IsSplit ? 2 : 1);
      high.lanes[i] = parts.high, rest.lanes[i] = parts.low;
    }
    *reinterpret_cast<Word*>(to) = high;
    if constexpr (IsSplit) *reinterpret_cast<Word*>(to + low) = rest;
  } else {
    *reinterpret_cast<Word*>(to) = pack<Element>(values);
  }
}

// Fills some k-blocks, by all threads of the block.
template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void stage_chunk(const ChunkArguments& a, const ChunkItem& item, const ChunkRow* rows_of,
                                            int k_block, int count, char* memory) {
  const WindowPlaces places(a);
  const int words = a.order.words(), positions = a.plan.window, rows = a.plan.rows;
  const int low = places.block_bytes(a) * a.plan.staged;  // from a high part to its low part
  const int all = count * rows * positions * words;
  for (int i = threadIdx.x; i < all; i += kChunkThreads) {
    const int word = a.across ? i % words : i / positions % words;
    const int position = a.across ? i / words % positions : i % positions;
    const int row_and_block = i / (words * positions), row = row_and_block % rows, own = row_and_block / rows;
    const ChunkRow from = rows_of[row];
    const int channel = (k_block + own) * a.order.k_block + word * kWordElements<Element>;
    const long long at = static_cast<long long>(item.first_frame) * a.stride - a.history + position;
    float values[kWordElements<Element>];
    load_chunk_word<Chain, Element>(a, chunk_source(a, from, at, channel), from.row, channel, values);
    const int offset = places.offset(row * places.of_row + places.place(a, position), word);
    store_chunk_word<IsSplit, Element>(memory + own * places.block_bytes(a) + offset, low, values);
  }
}

}  // namespace sluice
