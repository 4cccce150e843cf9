// Depthwise conv1d, channels-first, with more taps than plain_rows holds and stride and dilation 1: a window of inputs
// in registers.
//
// A block is `lanes` threads along a row by as many rows as fit. Its inputs are in shared memory as floats, from the
// first output's first tap on, so that sums do not depend on the tensor's alignment, and so are the taps of its rows:
//
//   row 0   [ lanes x 12 + taps - 1 inputs, zeros and history filled in | ]     a.stage_words words each
//   row 1   [ ... ]
//   row 0   [ taps | ]                                                          a.tap_bytes each
//
// A thread has 12 consecutive outputs, so it is 3 words from the next thread, and eight threads read a word each from
// different banks. For each four taps it reads one word of inputs and one of taps, and has 48 products to sum:
//
//   thread t, taps k .. k + 3     |wwww|wwww|wwww|nnnn|     w: in registers from earlier taps, n: read now
//
// The results go through shared memory, in the inputs' memory, so that words of the output are aligned and a warp's are
// contiguous.
#pragma once

#include "kernels/operators/conv1d/depthwise/register_ring.cuh"

namespace sluice {

__device__ __forceinline__ void read_quad(const float* from, float* to) {
  const float4 quad = *reinterpret_cast<const float4*>(from);
  to[0] = quad.x, to[1] = quad.y, to[2] = quad.z, to[3] = quad.w;
}

// sums[j] += sum_k taps[k] * inputs[j + k], in the order of k. Both start at words, and may be read to the end of the
// last word.
__device__ __forceinline__ void slide_window(const float* inputs, const float* taps, int count,
                                             float (&sums)[kWindowOutputs]) {
  constexpr int kQuads = kWindowOutputs / 4, kRing = kQuads + 1;
  float ring[4 * kRing], own[4];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) read_quad(inputs + 4 * q, ring + 4 * q);
  // Reads the words of a step; element i of its window is ring[(kFirst + i) % (4 * kRing)].
  const auto read = [&](auto step) {
    constexpr int kStep = decltype(step)::value;
    read_quad(inputs + 4 * (kStep + kQuads), ring + 4 * ((kStep + kQuads) % kRing));
    read_quad(taps + 4 * kStep, own);
  };
  const auto add_tap = [&](auto step, int i) {
    constexpr int kFirst = 4 * decltype(step)::value;
#pragma unroll
    for (int j = 0; j < kWindowOutputs; ++j) {
      sums[j] = multiply_add(own[i], ring[(kFirst + i + j) % (4 * kRing)], sums[j]);
    }
  };
#pragma unroll 1
  for (; count >= 4 * kRing; count -= 4 * kRing, inputs += 4 * kRing, taps += 4 * kRing) {
    for_unrolled<kRing>([&](auto step) {
      read(step);
#pragma unroll
      for (int i = 0; i < 4; ++i) add_tap(step, i);
    });
  }
  // The rest is less than once around. Not products with zero: the window may hold infinities.
  for_unrolled<kRing>([&](auto step) {
    const int left = count - 4 * decltype(step)::value;
    if (left <= 0) return;
    read(step);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) add_tap(step, i);
    }
  });
}

// The inputs of a row's tile: element i is at position start + i.
template <class Element>
struct WindowRow {
  long long batch, channel, start;  // indices in the input; `start`: of element 0
  const Element* from;
  int first, last;  // elements inside the tensor

  __device__ __forceinline__ WindowRow(const Conv1dArguments<Element>& a, long long batch_index,
                                       long long output_channel, long long begin, int count)
      : batch(batch_index), channel(a.by_multiplier.quotient(output_channel)), start(begin - a.padding) {
    from = a.input.template as<const Element>() + batch * a.input.strides[0] + channel * a.input.strides[1] +
           start * a.input.strides[2];
    first = static_cast<int>(max_of<long long>(0, min_of<long long>(count, -start)));
    last = static_cast<int>(max_of<long long>(first, min_of<long long>(count, a.length - start)));
  }

  // By threads lane, lane + lanes, ... of `lanes`, a word each if the row is aligned, else an element. Loads are in
  // flight together.
  __device__ __forceinline__ void copy(const Conv1dArguments<Element>& a, int lane, int lanes, int count,
                                       float* to) const {
    constexpr int kWidth = kWordElements<Element>, kWordsAtOnce = 2, kElementsAtOnce = 8;
    for (int i = lane; i < first; i += lanes) to[i] = convert<float>(element_at(a, batch, channel, start + i));
    for (int i = last + lane; i < count; i += lanes) to[i] = 0.0f;
    int done = first;
    if (a.input.strides[2] == 1 && is_word_aligned(from)) {
      const int begin = round_up(first, kWidth), end = last / kWidth * kWidth;
      if (begin < end) {
#pragma unroll 1
        for (int first_word = begin + lane * kWidth; first_word < end; first_word += kWordsAtOnce * lanes * kWidth) {
          Word words[kWordsAtOnce];
          const auto at = [&](int w) { return first_word + w * lanes * kWidth; };
#pragma unroll
          for (int w = 0; w < kWordsAtOnce; ++w) {
            if (at(w) < end) words[w] = load_word(from + at(w));
          }
#pragma unroll
          for (int w = 0; w < kWordsAtOnce; ++w) {
            if (at(w) >= end) break;
            float values[kWidth];
            unpack<Element>(words[w], values);
#pragma unroll
            for (int v = 0; v < kWidth; v += 4) {
              *reinterpret_cast<float4*>(to + at(w) + v) =
                  make_float4(values[v], values[v + 1], values[v + 2], values[v + 3]);
            }
          }
        }
        for (int i = first + lane; i < begin; i += lanes) to[i] = convert<float>(from[i]);
        done = end;
      }
    }
    const long long step = lanes * a.input.strides[2];
    const Element* element = from + (done + lane) * a.input.strides[2];
#pragma unroll 1
    for (int at = done + lane; at < last; at += kElementsAtOnce * lanes) {
      Element elements[kElementsAtOnce];
#pragma unroll
      for (int i = 0; i < kElementsAtOnce; ++i, element += step) {
        if (at + i * lanes < last) elements[i] = *element;
      }
#pragma unroll
      for (int i = 0; i < kElementsAtOnce; ++i) {
        if (at + i * lanes < last) to[at + i * lanes] = convert<float>(elements[i]);
      }
    }
  }

  // `pre` on the copied words, which the same threads hold. Its result is rounded, as transform's would be.
  template <class Pre>
  __device__ __forceinline__ void prepare(const Conv1dArguments<Element>& a, int lane, int lanes, int count,
                                          float* inputs) const {
    constexpr int kWidth = kWordElements<Element>;
    for (int i = lane * kWidth; i < count; i += lanes * kWidth) {
      const Word word = apply_pre<Pre>(a, pack<Element>(inputs + i), batch, channel, start + i, 0, 1);
      unpack<Element>(word, inputs + i);
    }
  }
};

template <class Chains, class Element>
__device__ __forceinline__ void window_rows(const WindowsArguments<Element>& a) {
  constexpr int kWidth = kWordElements<Element>, kVectors = ceil_div(kWindowOutputs, kWidth), kTapsAtOnce = 4;
  extern __shared__ Word shared[];
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lanes = a.lanes, lane = static_cast<int>(threadIdx.x) - below * lanes, outputs = lanes * kWindowOutputs;
  const long long upper = a.by_across.quotient_of_31_bits(blockIdx.x), tile = blockIdx.x - upper * a.by_across.divisor;
  const long long row = upper * a.rows_per_block + below;
  const bool has_row = row < a.batch * a.channels;
  const long long batch = has_row ? a.by_channels.quotient(row) : 0, channel = has_row ? row - batch * a.channels : 0;
  const long long begin = tile * outputs - a.template misalignment<kWidth>(batch, channel);
  const int left = static_cast<int>(min_of<long long>(outputs, a.output_length - begin));  // outputs that exist
  float* const inputs = reinterpret_cast<float*>(shared + below * a.stage_words);
  float* const taps = reinterpret_cast<float*>(shared + a.rows_per_block * a.stage_words) + below * (a.tap_bytes / 4);

  if (has_row) {
    const int count = max_of(left, 0) + a.taps - 1;
    const WindowRow<Element> window(a, batch, channel, begin, count);
    window.copy(a, lane, lanes, count, inputs);
#pragma unroll 1
    for (int first = lane; first < a.taps; first += kTapsAtOnce * lanes) {
      float values[kTapsAtOnce];
      a.load_taps(
          [&](int i) { return first + i * lanes < a.taps ? a.tap_index(channel, first + i * lanes) : kNoElement; },
          values);
#pragma unroll
      for (int i = 0; i < kTapsAtOnce; ++i) {
        if (first + i * lanes < a.taps) taps[first + i * lanes] = values[i];
      }
    }
  }
  __syncthreads();
  if (!typename Chains::Pre{a.pre}.empty()) {
    if (has_row) {
      const int count = max_of(left, 0) + a.taps - 1;
      WindowRow<Element>(a, batch, channel, begin, count)
          .template prepare<typename Chains::Pre>(a, lane, lanes, count, inputs);
    }
    __syncthreads();
  }

  float sums[kWindowOutputs];
  const bool has_outputs = has_row && lane * kWindowOutputs < left;
  if (has_outputs) {
    const float bias = a.bias_of(channel);
#pragma unroll
    for (int j = 0; j < kWindowOutputs; ++j) sums[j] = bias;
    slide_window(inputs + lane * kWindowOutputs, taps, a.taps, sums);
  }
  __syncthreads();
  if (has_outputs) {
#pragma unroll
    for (int j = 0; j < kWindowOutputs; j += 4) {
      *reinterpret_cast<float4*>(inputs + lane * kWindowOutputs + j) =
          make_float4(sums[j], sums[j + 1], sums[j + 2], sums[j + 3]);
    }
  }
  __syncthreads();
  if (!has_row) return;

  float values[kVectors * kWidth];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = (lane + v * lanes) * kWidth;
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      if (at < outputs) read_quad(inputs + at + i, values + v * kWidth + i);
    }
  }
  const auto place_of = [&](const long long* strides, int v) {
    const int at = (lane + v * lanes) * kWidth;
    const long long offset = batch * strides[0] + channel * strides[1] + (begin + at) * strides[2];
    return Place{.offset = offset,
                 .stride = strides[2],
                 .first = begin + at < 0 ? static_cast<int>(-(begin + at)) : 0,
                 .last = at < outputs ? max_of(0, min_of(kWidth, left - at)) : 0};
  };
  finish_slices<typename Chains::Post, kWidth, kVectors>(a.post, a.output, a.output_type(), place_of, values);
}

// Without chains: a chain that is not linked runs in the other kernels.
template <class Element>
__global__ void __launch_bounds__(kWindowThreads, kWindowRowBlocks)
    window_rows_kernel(const __grid_constant__ WindowsArguments<Element> a) {
  window_rows<NoChains>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::window_rows, Element> {
  static Kernel<WindowsArguments<Element>> of(const Conv1dParams&) { return window_rows_kernel<Element>; }
};

}  // namespace sluice
