// Final states. If they do not overwrite the initial states, blocks after the tiles' compute them, a thread for each
// channel of a sequence, or for four. States updated in place belong to the threads that read them: these blocks then
// only have the states of sequences without positions, also of rows whose ids are all negative.
#pragma once

#include "kernels/operators/causal_conv1d/state_bits.cuh"
#include "kernels/operators/causal_conv1d/subsequences.cuh"
#include "kernels/operators/conv1d/depthwise/few_taps.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// The new bits of column j of a state.
template <class Pre, class Element>
__device__ __forceinline__ std::uint64_t new_column(const SequencesArguments<Element>& a,
                                                    const Subsequence& last_subsequence, long long channel,
                                                    long long j) {
  const Sequences& s = a.sequences;
  const long long position = last_subsequence.last - s.columns + j;
  if (position >= last_subsequence.first) {
    const Element token = token_at<Pre>(a, last_subsequence.row, channel, position);
    if (s.after.dtype != kDType<Element>) return bits_as(s.after.dtype, convert<Compute<Element>>(token));
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &token, sizeof(token));
    return bits;
  }
  if (!last_subsequence.has_history) return 0;
  const long long from = last_subsequence.slot * s.before.strides[0] + channel * s.before.strides[1] +
                         (j + last_subsequence.last - last_subsequence.first) * s.before.strides[2];
  return s.after.dtype == s.before.dtype ? load_bits(s.before.dtype, s.before.data, from)
                                         : bits_as(s.after.dtype, load_as<double>(s.before.data, s.before.dtype, from));
}

// Columns from the oldest on, so that a row may be moved in place; some at a time, with their loads in flight together.
template <class Pre, class Element>
__device__ __forceinline__ void keep_state(const SequencesArguments<Element>& a, const Subsequence& last_subsequence,
                                           long long channel) {
  constexpr int kSome = 4;
  const Sequences& s = a.sequences;
  if (last_subsequence.last == last_subsequence.first && last_subsequence.has_history && s.before.data == s.after.data)
    return;
  const long long to = last_subsequence.slot * s.after.strides[0] + channel * s.after.strides[1];
#pragma unroll 1
  for (long long j = 0; j < s.columns; j += kSome) {
    std::uint64_t bits[kSome];
#pragma unroll
    for (int i = 0; i < kSome; ++i)
      bits[i] = j + i < s.columns ? new_column<Pre>(a, last_subsequence, channel, j + i) : 0;
#pragma unroll
    for (int i = 0; i < kSome; ++i) {
      if (j + i < s.columns) store_bits(s.after.dtype, s.after.data, to + (j + i) * s.after.strides[2], bits[i]);
    }
  }
}

// All columns of four channels of a cache slot.
template <class Element, int Columns>
struct ColumnQuads {
  Element values[Columns][4];

  __device__ static ColumnQuads load(const Operand<3>& states, StateQuads order, long long slot, int channel) {
    const Element* const from =
        states.template as<const Element>() + slot * states.strides[0] + channel * states.strides[1];
    Quad<Element> quads[Columns];
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      quads[c] = Quad<Element>::load(from + (order == StateQuads::rows ? 4 * c : c * states.strides[2]));
    }
    Element flat[4 * Columns];
    __builtin_memcpy(flat, quads, sizeof(flat));
    ColumnQuads columns;
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Element of_row = flat[i * Columns + c], of_column = flat[4 * c + i];
        columns.values[c][i] = order == StateQuads::rows ? of_row : of_column;
      }
    }
    return columns;
  }
  // Moves the others to the front; without an index that is only known at run time.
  __device__ void drop_first(int count) {
#pragma unroll
    for (int step = 1; step < Columns; ++step) {
      if (step > count) break;
#pragma unroll
      for (int c = 0; c < Columns - 1; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[c][i] = values[c + 1][i];
      }
    }
  }
  __device__ void store(const Operand<3>& states, StateQuads order, long long slot, int channel) const {
    Element* const to = states.template as<Element>() + slot * states.strides[0] + channel * states.strides[1];
    Element flat[4 * Columns];
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Element of_row = values[(4 * c + i) % Columns][(4 * c + i) / Columns], of_column = values[c][i];
        flat[4 * c + i] = order == StateQuads::rows ? of_row : of_column;
      }
    }
    Quad<Element> quads[Columns];
    __builtin_memcpy(quads, flat, sizeof(flat));
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      quads[c].store(to + (order == StateQuads::rows ? 4 * c : c * states.strides[2]));
    }
  }
};

// Four channels of the last `count` columns of a state, `Most` at most.
template <int Most, int Rows, class Element>
__device__ __forceinline__ void load_columns(const SequencesArguments<Element>& a, long long slot, int channel,
                                             int count, float (&to)[Rows][4]) {
  const Operand<3>& before = a.sequences.before;
  if (a.before_quads != StateQuads::none) {
    return for_counts<kFewTaps>(static_cast<int>(a.sequences.columns), [&](auto columns) {
      constexpr int kColumns = decltype(columns)::value;
      auto state = ColumnQuads<Element, kColumns>::load(before, a.before_quads, slot, channel);
      state.drop_first(kColumns - count);
#pragma unroll
      for (int r = 0; r < min_of(Most, kColumns); ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[r][i] = convert<float>(state.values[r][i]);
      }
    });
  }
  const long long* const strides = before.strides;
  const long long first = slot * strides[0] + channel * strides[1] + (a.sequences.columns - count) * strides[2];
  with_element_type(before.dtype, [&](auto* tag) {
    const auto* const from = static_cast<decltype(tag)>(before.data) + first;
#pragma unroll
    for (int r = 0; r < Most; ++r) {
      if (r >= count) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[r][i] = convert<float>(from[i * strides[1] + r * strides[2]]);
    }
  });
}

// Four channels of a token after `pre`, as the convolution reads them.
template <class Pre, class Element>
__device__ __forceinline__ Quad<Element> quad_at(const SequencesArguments<Element>& a, long long row, long long channel,
                                                 long long position) {
  const auto offset = [&](const long long* strides) {
    return row * strides[0] + channel * strides[1] + position * strides[2];
  };
  const auto quad = Quad<Element>::load(a.input.template as<const Element>() + offset(a.input.strides));
  if (Pre{a.pre}.empty()) return quad;
  float values[4];
  quad.unpack_to(values);
  run_chain<Pre, 4, 1>(
      a.pre, [&](const long long* strides, int) { return Place{offset(strides), strides[1], 0, 4, 0}; }, values);
  return Quad<Element>::of(values);
}

// keep_state of four channels that are contiguous in the input, for states in quads.
template <class Pre, int Columns, class Element>
__device__ __forceinline__ void keep_quads(const SequencesArguments<Element>& a, const Subsequence& last_subsequence,
                                           int channel) {
  const Sequences& s = a.sequences;
  const long long length = last_subsequence.last - last_subsequence.first;
  ColumnQuads<Element, Columns> columns{};
  if (last_subsequence.has_history && length < Columns) {
    columns = ColumnQuads<Element, Columns>::load(s.before, a.before_quads, last_subsequence.slot, channel);
    columns.drop_first(static_cast<int>(length));
  }
#pragma unroll
  for (int c = 0; c < Columns; ++c) {
    if (length < Columns - c) continue;
    const auto quad = quad_at<Pre>(a, last_subsequence.row, channel, last_subsequence.last - Columns + c);
    __builtin_memcpy(columns.values[c], quad.lanes, sizeof(columns.values[c]));
  }
  columns.store(s.after, a.after_quads, last_subsequence.slot, channel);
}

// keep_state of four channels that are contiguous in the input, all of one dtype of at most 32 bits: some columns at a
// time, with their loads in flight together. Other dtypes are for calls without `pre`.
template <class Pre, class Element>
__device__ __forceinline__ void keep_quad_state(const SequencesArguments<Element>& a,
                                                const Subsequence& last_subsequence, int channel) {
  using Bits = std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint32_t>;
  constexpr int kSome = 4, kChannels = 4;
  const Sequences& s = a.sequences;
  const bool is_one_dtype =
      s.after.dtype == kDType<Element> && (!s.before.exists() || s.before.dtype == kDType<Element>);
  if (!is_one_dtype) {
    if constexpr (std::is_same_v<Pre, NoChain>) {
      for (int i = 0; i < kChannels; ++i) keep_state<NoChain>(a, last_subsequence, channel + i);
    }
    return;
  }
  if (last_subsequence.last == last_subsequence.first && last_subsequence.has_history && s.before.data == s.after.data)
    return;
  if (a.after_quads != StateQuads::none && (!s.before.exists() || a.before_quads != StateQuads::none)) {
    return for_counts<kFewTaps>(static_cast<int>(s.columns), [&](auto columns) {
      keep_quads<Pre, decltype(columns)::value>(a, last_subsequence, channel);
    });
  }
  const Bits* const before = static_cast<const Bits*>(s.before.data) + last_subsequence.slot * s.before.strides[0] +
                             channel * s.before.strides[1] +
                             (last_subsequence.last - last_subsequence.first) * s.before.strides[2];
  Bits* const after =
      static_cast<Bits*>(s.after.data) + last_subsequence.slot * s.after.strides[0] + channel * s.after.strides[1];
#pragma unroll 1
  for (long long j = 0; j < s.columns; j += kSome) {
    Bits bits[kSome][kChannels];
#pragma unroll
    for (int c = 0; c < kSome; ++c) {
      const long long position = last_subsequence.last - s.columns + j + c;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) bits[c][i] = 0;
      if (j + c >= s.columns) continue;
      if (position >= last_subsequence.first) {
        const auto quad = quad_at<Pre>(a, last_subsequence.row, channel, position);
        __builtin_memcpy(bits[c], quad.lanes, sizeof(bits[c]));
      } else if (last_subsequence.has_history) {
#pragma unroll
        for (int i = 0; i < kChannels; ++i)
          bits[c][i] = before[i * s.before.strides[1] + (j + c) * s.before.strides[2]];
      }
    }
#pragma unroll
    for (int c = 0; c < kSome; ++c) {
      if (j + c >= s.columns) continue;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) after[i * s.after.strides[1] + (j + c) * s.after.strides[2]] = bits[c][i];
    }
  }
}

inline constexpr int kStateBlockSequences = 4;
inline constexpr int kStateBlockChannels = 1024;

// The number of these blocks, of `threads`. A thread has `channels` channels.
template <class Element>
long long state_blocks(const SequencesArguments<Element>& a, int threads, int channels) {
  const Sequences& s = a.sequences;
  if (!s.after.exists()) return 0;
  if (!s.moves_in_place()) return ceil_div<long long>(s.count * (a.channels / channels), threads);
  const bool may_change = (s.is_packed() || s.ids.exists() || a.length == 0) && s.continues.exists();
  return may_change ? ceil_div<long long>(s.count, kStateBlockSequences) * a.channel_blocks : 0;
}

// The subsequence whose end is the sequence's final state.
template <class Element>
__device__ __forceinline__ Subsequence state_subsequence(const SequencesArguments<Element>& a, long long n) {
  const Sequences& s = a.sequences;
  if (s.is_packed()) return packed_subsequence(s, 0, n, a.length);
  return last_subsequence_of(s, SearchedRow{s, n, a.length}, {n, 0, a.length, s.slot_of(n), s.has_history(n)});
}

template <class Pre, int Channels = 1, class Element>
__device__ __noinline__ void keep_states(const SequencesArguments<Element>& a, long long block) {
  const Sequences& s = a.sequences;
  if (!s.moves_in_place()) {
    const long long index = (block * blockDim.x + threadIdx.x) * Channels, n = a.by_channels.quotient(index);
    if (n >= s.count || s.slot_of(n) < 0) return;
    const long long channel = index - n * a.channels;
    if constexpr (Channels == 1) {
      return keep_state<Pre>(a, state_subsequence(a, n), channel);
    } else {
      return keep_quad_state<Pre>(a, state_subsequence(a, n), static_cast<int>(channel));
    }
  }
  const long long sequence_block = block / a.channel_blocks;
  const long long channel = (block - sequence_block * a.channel_blocks) * kStateBlockChannels;
  for (long long n = sequence_block * kStateBlockSequences;
       n < min_of((sequence_block + 1) * kStateBlockSequences, s.count); ++n) {
    if (s.has_history(n) || s.slot_of(n) < 0) continue;                   // its state does not change
    if (s.ids.exists() && a.length > 0 && s.ids.at(n, 0) >= 0) continue;  // saves the search
    const Subsequence subsequence = state_subsequence(a, n);
    if (subsequence.last > subsequence.first) continue;
    for (long long c = channel + threadIdx.x; c < min_of<long long>(channel + kStateBlockChannels, a.channels);
         c += blockDim.x) {
      keep_state<NoChain>(a, subsequence, c);  // without tokens
    }
  }
}

}  // namespace sluice
