// The window of a chunk, after `pre`, in the layout that the product reads. Some blocks have a row's channels of a
// k-block each: they fill the history, then replace the states. Other blocks take 256 words of the input each.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/arguments.cuh"
#include "kernels/operators/causal_conv1d/new_state.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/mma/tf32.h"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

struct GatherArguments {
  ChunkNumbers n;
  FastDivisor by_words, by_positions, by_channels;
  int k_block;                       // channels of a k-block
  int state_blocks, overlap_blocks;  // the first blocks of the grid
  int first_position;                // positions of the window before it are the states' blocks'
  bool aligned;                      // whole words of the input's channels are
  bool across;                       // adjacent threads take adjacent words of channels, else positions
  ChunkTensors t;
  float* overlaps;
  ChainArguments<float, 3> pre;
};

// Where a word of a window comes from.
template <class Element>
struct WordSource {
  const Element* first = nullptr;  // null: zeros
  long long step = 0;              // from a channel to the next
  bool is_whole = false;           // whether a whole word may be read

  WordSource() = default;
  __device__ __forceinline__ WordSource(const Operand<3>& tensor, long long offset, bool whole)
      : first(tensor.as<Element>() + offset), step(tensor.strides[1]), is_whole(whole) {}
};

// `position` is the input's, negative before it.
template <class Element>
__device__ __forceinline__ WordSource<Element> source_of(const GatherArguments& a, int row, long long position,
                                                         int channel) {
  const WindowParams& chunk = a.t.chunk;
  const long long slot = chunk.states.slot_of(row);
  if (slot < 0 || position >= chunk.length) return {};
  if (position >= 0) {
    const long long* const strides = chunk.input.strides;
    return {chunk.input, row * strides[0] + channel * strides[1] + position * strides[2], a.aligned};
  }
  if (a.t.spread > 0) return {};
  const ValueRun before = chunk.before(row, slot, channel, chunk.states.columns + position);
  if (before.from == nullptr || before.zeros > 0) return {};
  return {*before.from, before.offset, false};
}

// A word's values after `pre`; channels that do not exist are zeros, and so is what is before a row's first input. Only
// a transposed convolution's `pre` has operands with positions.
template <class Chain, class Element>
__device__ __forceinline__ void load_window_word(const GatherArguments& a, int row, long long position, int channel,
                                                 float (&values)[kWordElements<Element>]) {
  constexpr int kElements = kWordElements<Element>;
  const WordSource<Element> source = source_of<Element>(a, row, position, channel);
  const int count = min_of(static_cast<int>(a.t.chunk.channels) - channel, kElements);
#pragma unroll
  for (int i = 0; i < kElements; ++i) values[i] = 0.0f;
  if (source.first == nullptr || count <= 0) return;
  if (source.is_whole && count == kElements) {
    unpack<Element>(load_word(source.first), values);
  } else {
    const Element* from = source.first;
#pragma unroll
    for (int i = 0; i < kElements; ++i, from += source.step) {
      if (i < count) values[i] = convert<float>(*from);
    }
  }
  if constexpr (!std::is_same_v<Chain, NoChain>) {
    run_chain<Chain, kElements, 1>(
        a.pre,
        [&](const long long* strides, int) {
          return Place{row * strides[0] + channel * strides[1] + position * strides[2], strides[1], 0, count, 0};
        },
        values);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = i < count ? values[i] : 0.0f;
  }
}

// As the products take it: float32 rounded to TF32, or as its high and its low part.
template <bool IsSplit, class Element>
__device__ __forceinline__ void store_window_word(char* to, long long to_low,
                                                  const float (&values)[kWordElements<Element>]) {
  if constexpr (std::is_same_v<Element, float>) {
    Word high, low;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const SplitFloat parts = parts_of_float(__float_as_uint(values[i]), IsSplit ? 2 : 1);
      high.lanes[i] = parts.high, low.lanes[i] = parts.low;
    }
    *reinterpret_cast<Word*>(to) = high;
    if constexpr (IsSplit) *reinterpret_cast<Word*>(to + to_low) = low;
  } else {
    *reinterpret_cast<Word*>(to) = pack<Element>(values);
  }
}

// `position` is the window's.
template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void gather_word(const GatherArguments& a, int row, int position, int k_block, int word) {
  float values[kWordElements<Element>];
  const int channel = k_block * a.k_block + word * kWordElements<Element>;
  load_window_word<Chain, Element>(a, row, position - a.t.chunk.history, channel, values);
  const int quotient = static_cast<int>(a.n.by_stride.quotient_of_31_bits(position));
  const int residue = position - quotient * a.n.stride, line = row * a.n.stride + residue;
  char* const to = a.n.window + k_block * a.n.slab + static_cast<long long>(line) * a.n.places * a.n.row_bytes +
                   place_offset(quotient, word, a.n.row_bytes);
  store_window_word<IsSplit, Element>(to, a.n.part, values);
}

// The new state of a row's channels, some columns at a time from the oldest on: each takes the old value of a later
// column.
template <class Element>
__device__ __forceinline__ void replace_states(const GatherArguments& a, int row, long long slot, int k_block) {
  constexpr int kAhead = 4;  // columns of a thread that are read before any is written
  const WindowParams& chunk = a.t.chunk;
  const Operand<3>& cache = chunk.states.before;
  const int lanes = kChunkThreads / a.k_block, lane = static_cast<int>(threadIdx.x) / a.k_block;
  const int channel = k_block * a.k_block + static_cast<int>(threadIdx.x) % a.k_block;
  const bool exists = channel < chunk.channels;
  const NewState state(chunk, row, slot, exists ? channel : 0);
#pragma unroll 1
  for (long long first = lane; first < chunk.states.columns + lane; first += kAhead * lanes) {
    Element values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long j = first + k * lanes;
      const ValuePlace from = exists && j < chunk.states.columns ? state.source(j) : ValuePlace{};
      values[k] = from.tensor != nullptr ? from.tensor->template as<Element>()[from.offset] : Element{};
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long j = first + k * lanes;
      if (exists && j < chunk.states.columns) cache.as<Element>()[state.offset(j)] = values[k];
    }
    __syncthreads();
  }
}

template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void gather_history(const GatherArguments& a, int index) {
  const int row = index / a.n.k_blocks, k_block = index - row * a.n.k_blocks;
  const int words = a.n.words, all = static_cast<int>(a.t.chunk.history) * words;
#pragma unroll 1
  for (int i = threadIdx.x; i < all; i += kChunkThreads) {
    const int position = i / words;
    gather_word<Chain, IsSplit, Element>(a, row, position, k_block, i - position * words);
  }
  __syncthreads();
  const long long slot = a.t.chunk.states.slot_of(row);
  if (slot >= 0) replace_states<Element>(a, row, slot, k_block);
}

template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void gather_input(const GatherArguments& a, unsigned index) {
  const FastDivisor &inner = a.across ? a.by_words : a.by_positions, &outer = a.across ? a.by_positions : a.by_words;
  const unsigned line = inner.quotient_of_31_bits(index), row = outer.quotient_of_31_bits(line);
  const int fast = static_cast<int>(index - line * static_cast<unsigned>(inner.divisor));
  const int slow = static_cast<int>(line - row * static_cast<unsigned>(outer.divisor));
  if (row >= a.n.rows) return;
  const int word = a.across ? fast : slow, position = a.across ? slow : fast;
  const int k_block = word / a.n.words;
  gather_word<Chain, IsSplit, Element>(a, static_cast<int>(row), a.first_position + position, k_block,
                                       word - k_block * a.n.words);
}

// Old overlaps, which the product's blocks replace while others still need them.
__device__ __forceinline__ void gather_overlaps(const GatherArguments& a, unsigned index) {
  const unsigned line = a.by_channels.quotient_of_31_bits(index);
  const unsigned channel = index - line * static_cast<unsigned>(a.t.channels);
  const auto overlap = static_cast<unsigned>(a.t.overlap);
  const unsigned row = line / overlap, column = line - row * overlap;
  if (row >= a.n.rows) return;
  const Sequences& states = a.t.chunk.states;
  const long long slot = states.slot_of(row), *strides = states.before.strides;
  const bool continues = slot >= 0 && states.has_history(row);
  a.overlaps[index] =
      continues ? states.before.as<float>()[slot * strides[0] + channel * strides[1] + column * strides[2]] : 0.0f;
}

}  // namespace sluice
