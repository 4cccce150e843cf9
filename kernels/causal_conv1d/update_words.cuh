// One token for each sequence, where the rows of neighbouring channels lie one behind another: a thread has a word of
// channels, whose rows are whole words too.
//
//   x        |c0 c1 c2 c3 c4 c5 c6 c7|                                          one word of half types
//   state    |c0 c0 c0 c1 c1 c1 c2 c2|c2 c3 c3 c3 c4 c4 c4 c5|c5 c5 c6 c6 ...   `Columns` words
//
// All loads of a thread are in flight before the first is used.
#pragma once

#include "kernels/causal_conv1d/update_kernel.cuh"

namespace sluice {

inline constexpr int kUpdateWordsThreads = 64;  // not tuned

// The taps of a word of channels, [channel][tap]. Words where the weight is the input's dtype, dense and aligned.
template <class Element, int Taps, class T>
__device__ __forceinline__ void load_taps(const UpdateArguments<Element>& a, long long c, T* taps) {
  constexpr int kWidth = kWordElements<Element>;
  if (a.has_weight_words) {
    const Element* const first = a.weight.template as<const Element>() + c * Taps;
#pragma unroll
    for (int w = 0; w < Taps; ++w) unpack<Element>(load_word(first + w * kWidth), taps + w * kWidth);
    return;
  }
  with_element_type(a.weight.dtype, [&](auto* tag) {
    const auto* const first = static_cast<decltype(tag)>(a.weight.data) + c * a.weight.strides[0];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
#pragma unroll
      for (int k = 0; k < Taps; ++k) {
        taps[i * Taps + k] = convert<T>(first[i * a.weight.strides[0] + k * a.weight.strides[1]]);
      }
    }
  });
}

template <class Element, class T>
__device__ __forceinline__ void load_bias(const UpdateArguments<Element>& a, long long c, T* sums) {
  constexpr int kWidth = kWordElements<Element>;
  if (a.has_bias_words) return unpack<Element>(load_word(a.bias.template as<const Element>() + c), sums);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = T(0);
  if (!a.bias.exists()) return;
  with_element_type(a.bias.dtype, [&](auto* tag) {
    const auto* const first = static_cast<decltype(tag)>(a.bias.data) + c * a.bias.strides[0];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = convert<T>(first[i * a.bias.strides[0]]);
  });
}

template <class Element, int Taps, int Columns>
__global__ void __launch_bounds__(kUpdateWordsThreads)
    update_words_kernel(const __grid_constant__ UpdateArguments<Element> a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  long long n, c;
  if (!find_channels<kWidth>(a, n, c)) return;
  Element* const out = a.output.template as<Element>() + n * a.output.strides[0] + c;
  const long long slot = slot_of(a, n);
  if (slot < 0) {
    store_global_word(out, Word{});
    return;
  }
  Element* const row = a.state.template as<Element>() + slot * a.state.strides[0] + c * Columns;
  Word words[Columns];
#pragma unroll
  for (int w = 0; w < Columns; ++w) words[w] = load_word(row + w * kWidth);
  const Word token = load_word(a.input.template as<const Element>() + n * a.input.strides[0] + c);
  T taps[Taps * kWidth], sums[kWidth];
  load_taps<Element, Taps>(a, c, taps);
  load_bias<Element>(a, c, sums);
  Element columns[Columns * kWidth], values[kWidth];
  __builtin_memcpy(columns, words, sizeof(words));
  __builtin_memcpy(values, &token, sizeof(token));
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    Element* const own = columns + i * Columns;
#pragma unroll
    for (int k = 0; k + 1 < Taps; ++k) {
      sums[i] = multiply_add(taps[i * Taps + k], convert<T>(own[Columns - (Taps - 1) + k]), sums[i]);
    }
    sums[i] = multiply_add(taps[i * Taps + Taps - 1], convert<T>(values[i]), sums[i]);
    if (a.silu) sums[i] = silu_of<Element>(sums[i]);
#pragma unroll
    for (int j = 0; j + 1 < Columns; ++j) own[j] = own[j + 1];
    own[Columns - 1] = values[i];
  }
  __builtin_memcpy(words, columns, sizeof(words));
#pragma unroll
  for (int w = 0; w < Columns; ++w) store_global_word(row + w * kWidth, words[w]);
  store_global_word(out, pack<Element>(sums));
}

}  // namespace sluice
