// The window of a chunk, after `pre`, in the layout that the product reads. Some blocks have a row's channels of a
// k-block each: they fill the history, then replace the states. Other blocks take 256 words of the input each.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/arguments.cuh"
#include "kernels/operators/causal_conv1d/new_state.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/mma/tf32.h"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

struct GatherArguments {
  ChunkNumbers n;
  FastDivisor by_words, by_positions, by_channels;
  int state_blocks, overlap_blocks;  // the first blocks of the grid
  int first_position;                // positions of the window before it are the states' blocks'
  bool aligned;                      // whole words of the input's channels are
  bool across;                       // adjacent threads take adjacent words of channels, else positions
  ChunkTensors t;
  float* overlaps;
  ChainArguments<float, 3> pre;
};

template <class Element>
inline constexpr int kWordElementsLog = kWordElements<Element> == 8 ? 3 : 2;

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
  const long long slot = row >= 0 ? chunk.states.slot_of(row) : -1;
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
  const int count = row >= 0 ? min_of(static_cast<int>(a.t.chunk.channels) - channel, kElements) : 0;
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

// A word of a row's window.
struct WindowWord {
  int row = -1;  // -1: no word
  int position = 0, k_block = 0, word = 0;
};

template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void gather_word(const GatherArguments& a, const WindowWord& w) {
  float values[kWordElements<Element>];
  const int channel = ((w.k_block << a.n.words_log) + w.word) * kWordElements<Element>;
  load_window_word<Chain, Element>(a, w.row, w.position - a.t.chunk.history, channel, values);
  const int quotient = static_cast<int>(a.n.by_stride.quotient_of_31_bits(w.position));
  const int residue = w.position - quotient * a.n.stride, line = w.row * a.n.stride + residue;
  char* const to = a.n.window + w.k_block * a.n.slab + static_cast<long long>(line) * a.n.places * a.n.row_bytes +
                   place_offset(quotient, w.word, a.n.row_bytes);
  if (w.row >= 0) store_window_word<IsSplit, Element>(to, a.n.part, values);
}

// The new state of a row's channels of a k-block: each column takes the old value of a later column, or an input.
template <class Element>
class StateColumns {
 public:
  static constexpr int kAhead = 4;  // columns of a thread that are read before any is written

  __device__ __forceinline__ StateColumns(const GatherArguments& a, int row, int k_block)
      : log_(a.n.words_log + kWordElementsLog<Element>),
        lanes_(kChunkThreads >> log_),
        lane_(static_cast<int>(threadIdx.x) >> log_),
        slot_(a.t.chunk.states.slot_of(row)),
        all_(slot_ >= 0 ? a.t.chunk.states.columns : 0),
        channel_((k_block << log_) + (static_cast<int>(threadIdx.x) & ((1 << log_) - 1))),
        columns_(channel_ < a.t.chunk.channels ? all_ : 0),
        cache_(a.t.chunk.states.before),
        state_(a.t.chunk, row, slot_, columns_ > 0 ? channel_ : 0) {}

  // The oldest columns, `kAhead` of each thread.
  __device__ __forceinline__ void load_first(Element (&values)[kAhead]) const { load(lane_, values); }

  // From the oldest on, whose values are loaded. All threads have read what the block needs of the old state.
  __device__ __forceinline__ void replace(Element (&values)[kAhead]) const {
    __syncthreads();
    store(lane_, values);
    const int step = kAhead * lanes_;
#pragma unroll 1
    for (long long first = step; first < all_; first += step) {
      load(first + lane_, values);
      __syncthreads();
      store(first + lane_, values);
    }
  }

 private:
  __device__ __forceinline__ void load(long long first, Element (&values)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long j = first + k * lanes_;
      const ValuePlace from = j < columns_ ? state_.source(j) : ValuePlace{};
      values[k] = from.tensor != nullptr ? from.tensor->template as<Element>()[from.offset] : Element{};
    }
  }
  __device__ __forceinline__ void store(long long first, const Element (&values)[kAhead]) const {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const long long j = first + k * lanes_;
      if (j < columns_) cache_.as<Element>()[state_.offset(j)] = values[k];
    }
  }

  const int log_;           // channels of a k-block, as a power of two
  const int lanes_, lane_;  // threads of a channel, and which of them this is
  const long long slot_, all_;
  const int channel_;
  const long long columns_;  // 0 for a channel that does not exist
  const Operand<3>& cache_;
  const NewState state_;
};

// Word `i` of the history of a row's k-block.
__device__ __forceinline__ WindowWord history_word(const GatherArguments& a, int row, int k_block, int i) {
  return {row, i >> a.n.words_log, k_block, i & ((1 << a.n.words_log) - 1)};
}

// Word `index` of all that are not histories'.
__device__ __forceinline__ WindowWord input_word(const GatherArguments& a, unsigned index) {
  const FastDivisor &inner = a.across ? a.by_words : a.by_positions, &outer = a.across ? a.by_positions : a.by_words;
  const unsigned line = inner.quotient_of_31_bits(index), row = outer.quotient_of_31_bits(line);
  const int fast = static_cast<int>(index - line * static_cast<unsigned>(inner.divisor));
  const int slow = static_cast<int>(line - row * static_cast<unsigned>(outer.divisor));
  if (row >= a.n.rows) return {};
  const int word = a.across ? fast : slow, position = a.across ? slow : fast;
  return {static_cast<int>(row), a.first_position + position, word >> a.n.words_log, word & ((1 << a.n.words_log) - 1)};
}

// The words of a block, and the states whose history it had. What a wait need not precede is before it, and the first
// columns of a state are on their way with the words.
template <class Chain, bool IsSplit, class Element>
__device__ __forceinline__ void gather_words(const GatherArguments& a, int block) {
  const bool is_history = block < a.state_blocks;
  const int row = block / a.n.k_blocks, k_block = block - row * a.n.k_blocks;
  const int words = is_history ? static_cast<int>(a.t.chunk.history) << a.n.words_log : kChunkThreads;
  const unsigned first = static_cast<unsigned>(block - a.state_blocks - a.overlap_blocks) * kChunkThreads;
  const auto place_of = [&](int i) {
    return is_history ? history_word(a, row, k_block, i) : input_word(a, first + static_cast<unsigned>(i));
  };
  int i = static_cast<int>(threadIdx.x);
  WindowWord word = place_of(i);
  await_previous();
  begin_next();
  Element columns[StateColumns<Element>::kAhead];
  if (is_history) StateColumns<Element>(a, row, k_block).load_first(columns);
#pragma unroll 1
  for (; i < words; i += kChunkThreads, word = place_of(i)) gather_word<Chain, IsSplit, Element>(a, word);
  if (is_history) StateColumns<Element>(a, row, k_block).replace(columns);
}

// Old overlaps, which the product's blocks replace while others still need them.
__device__ __forceinline__ void gather_overlaps(const GatherArguments& a, unsigned index) {
  await_previous();
  begin_next();
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
