// Depthwise conv1d, channels-first: a row is one (batch, channel), a vector is consecutive positions.
//
// With stride and dilation 1 a thread slides a window over its row, one aligned word at a time. The row's alignment is
// not shifted away: it becomes an offset of the taps, so any padding and any pointer cost nothing.
//
//   words      |xxxxxxxx|xxxxxxxx|xxxxxxxx|     Width elements each, aligned in memory
//   outputs         oooooooo oooooooo           need words from `offset` on: output j, tap k reads element
//                   ^offset                     offset + j + k counted from the first word
//
// With other strides and dilations each tap reads elements: contiguous outputs are shared by `lanes` threads, each with
// every `lanes`-th one, so that their loads are as close as the stride allows.
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// The outputs of one thread: begin + j apart of row (batch, channel), first <= j < last.
struct RowSpan {
  long long batch, channel, begin;
  int apart;
  int first, last;
};

template <int Outputs, int Width, class Arguments>
__device__ __forceinline__ RowSpan row_span(const Arguments& a, long long row, long long vector) {
  constexpr bool kMayShare = requires { a.lanes; };  // rings' threads have contiguous outputs
  RowSpan span{a.by_channels.quotient(row), 0, 0, 1, 0, 0};
  span.channel = row - span.batch * a.channels;
  if constexpr (kMayShare) {
    span.apart = a.lanes;
    if (a.lanes > 1) {
      const int shared = Outputs * a.lanes;
      const long long share = a.by_lanes.quotient(vector);
      const int lane = static_cast<int>(vector - share * a.lanes);
      // The last share ends at the row's end, so that none of its inputs is past the inputs of existing outputs.
      const int back = static_cast<int>(max_of<long long>((share + 1) * shared - a.output_length, 0));
      span.begin = share * shared + lane - back;
      span.first = back > lane ? ceil_div(back - lane, a.lanes) : 0;
      span.last = Outputs;
      return span;
    }
  }
  span.begin = vector * Outputs - a.template misalignment<Width>(span.batch, span.channel);
  span.first = span.begin < 0 ? static_cast<int>(-span.begin) : 0;
  const long long left = a.output_length - span.begin;
  span.last = left < Outputs ? static_cast<int>(max_of<long long>(left, 0)) : Outputs;
  return span;
}

// Largest step for 32-bit offsets within a vector, and a position that it then cannot reach.
inline constexpr long long kFarStep = 1 << 24, kFarPosition = 1 << 30;

// A row of the input in global memory, by aligned words and by gathered vectors. Pre is void if there is none.
template <class Element, class Pre>
struct GlobalRow {
  static constexpr bool kIsStaged = false;
  const Conv1dArguments<Element>& a;
  long long batch, channel;  // indices in the input
  const Element* row;
  int lead;  // elements of row's first word before it

  __device__ bool has_pre() const {
    if constexpr (std::is_void_v<Pre>) {
      return false;
    } else {
      return !Pre{a.pre}.empty();
    }
  }
  __device__ Word prepared(const Word& word, long long position, long long step) const {
    if constexpr (std::is_void_v<Pre>) {
      return word;
    } else {
      return Pre{a.pre}.empty() ? word : apply_pre<Pre>(a, word, batch, channel, position, 0, step);
    }
  }
  __device__ GlobalRow(const Conv1dArguments<Element>& arguments, const RowSpan& span)
      : a(arguments), batch(span.batch) {
    channel = a.by_multiplier.quotient(span.channel);
    row = a.input.template as<const Element>() + batch * a.input.strides[0] + channel * a.input.strides[1];
    lead = a.input.strides[2] == 1
               ? static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % kWordBytes / sizeof(Element))
               : 0;
  }
  __device__ Word word(long long index) const {
    constexpr int kWidth = kWordElements<Element>;
    const long long position = index * kWidth - lead;
    const bool whole = a.input.strides[2] == 1 && position >= 0 && position + kWidth <= a.length;
    return prepared(whole ? load_word(row + position) : gather_word(a, batch, channel, position, 0, 1), position, 1);
  }
  // `Count` consecutive words, all in flight together if none is an edge.
  template <int Count>
  __device__ void load(long long index, Word (&words)[Count]) const {
    constexpr int kWidth = kWordElements<Element>;
    const long long position = index * kWidth - lead;
    if (!has_pre() && a.input.strides[2] == 1 && position >= 0 && position + Count * kWidth <= a.length) {
#pragma unroll
      for (int w = 0; w < Count; ++w) words[w] = load_word(row + position + w * kWidth);
    } else {
#pragma unroll
      for (int w = 0; w < Count; ++w) words[w] = word(index + w);
    }
  }
  // Words of elements `step` positions apart, all in flight together if no history precedes them.
  template <int Count>
  __device__ void gather(long long position, long long step, Word (&words)[Count]) const {
    constexpr int kWidth = kWordElements<Element>;
    const auto word_position = [&](int w) { return position + w * kWidth * step; };
    if (step < kFarStep && (position >= 0 || !a.history.exists())) {
      // Offsets from `position` of the row's begin and end.
      const int begin = static_cast<int>(min_of<long long>(max_of<long long>(-position, 0), kFarPosition));
      const int end = static_cast<int>(min_of<long long>(max_of<long long>(a.length - position, begin), kFarPosition));
      const Element* const from = row + position * a.input.strides[2];
#pragma unroll
      for (int w = 0; w < Count; ++w) {
        words[w] = gather_elements<Element>([&](int i) {
          const int offset = (w * kWidth + i) * static_cast<int>(step);
          const bool exists = static_cast<unsigned>(offset - begin) < static_cast<unsigned>(end - begin);
          return exists ? from[offset * a.input.strides[2]] : convert<Element>(Compute<Element>(0));
        });
      }
    } else {
#pragma unroll
      for (int w = 0; w < Count; ++w) words[w] = gather_word(a, batch, channel, word_position(w), 0, step);
    }
#pragma unroll
    for (int w = 0; w < Count; ++w) words[w] = prepared(words[w], word_position(w), step);
  }
  // Whether elements are contiguous and need no `pre`.
  __device__ bool is_plain() const { return !has_pre() && a.input.strides[2] == 1; }
};

__device__ __forceinline__ long long floor_div(long long value, int divisor) {
  return value >= 0 ? value / divisor : -((divisor - 1 - value) / divisor);
}

// Up to this many taps (register_taps) and the whole window are in registers: no load waits for another.
template <class Element>
inline constexpr int kRegisterTaps = kWordElements<Element>;

template <class Element>
__device__ __forceinline__ bool is_in_registers(const Conv1dArguments<Element>& a) {
  return a.stride == 1 && a.dilation == 1 && a.taps <= kRegisterTaps<Element>;
}

// The sum of `slide` for few taps. The window is shifted out of the words that hold it, so taps have fixed registers.
template <class Element, int Outputs, class Row, class Tap, class T>
__device__ __forceinline__ void slide_in_registers(const Conv1dArguments<Element>& a, const Row& row, long long begin,
                                                   Tap&& tap, T (&sums)[Outputs]) {
  constexpr int kWidth = kWordElements<Element>, kHeld = Outputs / kWidth, kTaps = kRegisterTaps<Element>;
  const long long start = begin - a.padding + row.lead;
  const long long first_word = floor_div(start, kWidth);
  const int shift = static_cast<int>(start - first_word * kWidth) * static_cast<int>(sizeof(Element));
  Word words[kHeld + 2];
  row.load(first_word, words);
  T weights[kTaps];
#pragma unroll
  for (int k = 0; k < kTaps; ++k) weights[k] = k < a.taps ? tap(k) : T(0);
  T window[Outputs + kWidth];
#pragma unroll
  for (int w = 0; w <= kHeld; ++w) unpack<Element>(shift_words(words[w], words[w + 1], shift), window + w * kWidth);
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
    if (k >= a.taps) break;  // not a product with zero: the window may hold infinities
#pragma unroll
    for (int j = 0; j < Outputs; ++j) sums[j] = multiply_add(weights[k], window[k + j], sums[j]);
  }
}

// sums[j] += sum_k tap(k) * row[begin + j - padding + k]: stride and dilation 1.
template <class Element, int Outputs, class Row, class Tap, class T>
__device__ __forceinline__ void slide(const Conv1dArguments<Element>& a, const Row& row, long long begin, Tap&& tap,
                                      T (&sums)[Outputs]) {
  constexpr int kWidth = kWordElements<Element>, kHeld = Outputs / kWidth;
  const long long start = begin - a.padding + row.lead;
  const long long first_word = floor_div(start, kWidth);
  const int offset = static_cast<int>(start - first_word * kWidth);
  const int end = offset + a.taps;

  T window[Outputs + kWidth];
  Word held[kHeld];
#pragma unroll
  for (int w = 0; w < kHeld; ++w) held[w] = row.word(first_word + w);
#pragma unroll
  for (int w = 0; w < kHeld; ++w) unpack<Element>(held[w], window + w * kWidth);
  for (int base = 0; base < end; base += kWidth) {
    // The last tap may need nothing of the next word.
    if (end - base > 1) {
      unpack<Element>(row.word(first_word + kHeld + base / kWidth), window + Outputs);
    }
    if (base >= offset && base + kWidth <= end) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const T weight = tap(base + k - offset);
#pragma unroll
        for (int j = 0; j < Outputs; ++j) sums[j] = multiply_add(weight, window[k + j], sums[j]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (base + k < offset || base + k >= end) continue;
        const T weight = tap(base + k - offset);
#pragma unroll
        for (int j = 0; j < Outputs; ++j) sums[j] = multiply_add(weight, window[k + j], sums[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < Outputs; ++j) window[j] = window[j + kWidth];
  }
}

// Taps first .. last - 1 of the sum below, whose elements all exist; the first tap's are at `from`. `Between` is 0 if
// not known at compile time.
template <int Between, class Element, int Outputs, class Tap, class T>
__device__ __forceinline__ void step_along(const Element* from, long long between, int dilation, int first, int last,
                                           Tap&& tap, T (&sums)[Outputs]) {
  const long long apart = Between > 0 ? Between : between;
#pragma unroll 2
  for (int k = first; k < last; ++k, from += dilation) {
    const T weight = tap(k);
#pragma unroll
    for (int j = 0; j < Outputs; ++j) sums[j] = multiply_add(weight, convert<T>(from[j * apart]), sums[j]);
  }
}

// sums[j] += sum_k tap(k) * row[(begin + j apart) stride - padding + k dilation].
template <class Element, int Outputs, class Row, class Tap, class T>
__device__ __forceinline__ void step(const Conv1dArguments<Element>& a, const Row& row, const RowSpan& span, Tap&& tap,
                                     T (&sums)[Outputs]) {
  constexpr int kWidth = kWordElements<Element>, kWarp = 32;
  const long long between = static_cast<long long>(a.stride) * span.apart;
  const long long position = span.begin * a.stride - a.padding;
  const auto along = [&](const Element* from, int first, int last) {
    switch (between) {  // a constant in the loads' addresses
      case kWarp: return step_along<kWarp>(from, between, a.dilation, first, last, tap, sums);
      case 2 * kWarp: return step_along<2 * kWarp>(from, between, a.dilation, first, last, tap, sums);
      default: return step_along<0>(from, between, a.dilation, first, last, tap, sums);
    }
  };
  if constexpr (Row::kIsStaged) {
    along(row.at(position), 0, a.taps);
  } else {
    // Taps with which no output of the warp reaches the padding.
    int first = 0, last = a.taps;
    if (position < 0) first = static_cast<int>(min_of<long long>(ceil_div<long long>(-position, a.dilation), a.taps));
    const long long left = a.length - position - (Outputs - 1) * between;
    if (left <= (a.taps - 1LL) * a.dilation) {
      last = static_cast<int>(max_of<long long>(left > 0 ? ceil_div<long long>(left, a.dilation) : 0, first));
    }
    first = __reduce_max_sync(__activemask(), first);
    last = row.is_plain() ? __reduce_min_sync(__activemask(), last) : first;
#pragma unroll 1
    for (int k = 0; k < a.taps; ++k) {
      if (k == first && first < last) {
        along(row.row + position + static_cast<long long>(k) * a.dilation, first, last);
        k = last - 1;
        continue;
      }
      const T weight = tap(k);
      Word words[Outputs / kWidth];
      row.gather(position + static_cast<long long>(k) * a.dilation, between, words);
#pragma unroll
      for (int w = 0; w < Outputs / kWidth; ++w) {
        T values[kWidth];
        unpack<Element>(words[w], values);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[w * kWidth + j] = multiply_add(weight, values[j], sums[w * kWidth + j]);
      }
    }
  }
}

template <class Element, int Outputs, class Post, class Row, class Tap>
__device__ __forceinline__ void convolve_row(const Conv1dArguments<Element>& a, const RowSpan& span, const Row& row,
                                             Tap&& tap) {
  using T = Compute<Element>;
  T sums[Outputs];
  const T bias = a.bias_of(span.channel);
#pragma unroll
  for (int j = 0; j < Outputs; ++j) sums[j] = bias;
  if (is_in_registers(a)) {
    slide_in_registers(a, row, span.begin, tap, sums);
  } else if (a.stride == 1 && a.dilation == 1) {
    slide(a, row, span.begin, tap, sums);
  } else {
    step(a, row, span, tap, sums);
  }
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = span.batch * strides[0] + span.channel * strides[1] + span.begin * strides[2];
    return Place{.offset = offset, .stride = strides[2] * span.apart, .first = span.first, .last = span.last};
  };
  finish_slices<Post, Outputs, 1>(a.post, a.output, a.output_type(), place_of, sums);
}

template <class Element>
inline constexpr int kRowOutputs = conv1d_row_outputs(kDType<Element>);

// The rows of a block's threads share its taps, which are in shared memory.
template <class Chains, class Element>
__device__ __forceinline__ void direct_rows(const DirectArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kOutputs = kRowOutputs<Element>;
  extern __shared__ Word shared[];
  T* const taps = reinterpret_cast<T*>(shared);
  const long long rows = a.batch * a.channels;
  const long long first_vector = static_cast<long long>(blockIdx.x) * blockDim.x;
  const long long first_row = a.by_vectors.quotient(first_vector);
  const long long last_row = min_of(rows - 1, a.by_vectors.quotient(first_vector + blockDim.x - 1));
  const int count = static_cast<int>(last_row - first_row + 1) * a.taps;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int r = i / a.taps;
    const long long own_row = first_row + r;
    taps[i] = a.tap(own_row - a.by_channels.quotient(own_row) * a.channels, i - r * a.taps);
  }
  __syncthreads();
  const long long vector = first_vector + threadIdx.x, row = a.by_vectors.quotient(vector);
  if (row >= rows) return;
  const RowSpan span = row_span<kOutputs, kWidth>(a, row, vector - row * a.vectors_per_row);
  if (span.last <= span.first) return;
  const GlobalRow<Element, typename Chains::Pre> input(a, span);
  const T* const own = taps + (row - first_row) * a.taps;
  convolve_row<Element, kOutputs, typename Chains::Post>(a, span, input, [&](int k) { return own[k]; });
}

// Without a chain, or with an interpreted one.
template <class Chains, class Element>
__global__ void __launch_bounds__(kConv1dThreads, direct_row_blocks(!std::is_same_v<Chains, NoChains>))
    direct_rows_kernel(const __grid_constant__ DirectArguments<Element> a) {
  direct_rows<Chains>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::direct_rows, Element> {
  static Kernel<DirectArguments<Element>> of(const Conv1dParams& params) {
    return params.pre.empty() && params.post.empty() ? direct_rows_kernel<NoChains, Element>
                                                     : direct_rows_kernel<InterpretedChains<Element, true>, Element>;
  }
};

}  // namespace sluice
