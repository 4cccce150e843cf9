// Any taps, dilation, dtypes, strides and chains: a thread has some positions of one channel of a row, and sums each
// position's window separately.
#pragma once

#include "kernels/operators/causal_conv1d/states.cuh"

namespace sluice {

inline constexpr int kSequencesThreads = 128;  // not tuned
inline constexpr int kSequencesPositions = 8;  // not tuned

template <class Chains, class Element>
__device__ __forceinline__ void convolve_position(const SequencesArguments<Element>& a, const Subsequence& subsequence,
                                                  long long channel, long long position) {
  using T = Compute<Element>;
  T values[1] = {a.bias_of(channel)};
#pragma unroll 1
  for (int k = 0; k < a.taps; ++k) {
    const long long from = position - (a.taps - 1LL - k) * a.dilation;
    const T value = from >= subsequence.first
                        ? convert<T>(token_at<typename Chains::Pre>(a, subsequence.row, channel, from))
                        : history_at(a, subsequence, channel, from);
    values[0] = multiply_add(a.tap(channel, k), value, values[0]);
  }
  const auto offset = [&](const long long* strides) {
    return subsequence.row * strides[0] + channel * strides[1] + position * strides[2];
  };
  run_chain<typename Chains::Post, 1, 1>(
      a.post, [&](const long long* strides, int) { return Place{offset(strides), 0, 0, 1, 0}; }, values);
  a.output.template as<Element>()[offset(a.output.strides)] = convert<Element>(values[0]);
}

template <class Chains, class Element>
__device__ __forceinline__ void convolve_positions(const SequencesArguments<Element>& a, long long row,
                                                   long long channel, long long first, long long last) {
  Element* const output = a.output.template as<Element>() + row * a.output.strides[0] + channel * a.output.strides[1];
  for_subsequences(
      a, SearchedRow{a.sequences, row, a.length}, first, last,
      [&](long long from, long long to) {
        const Element zero = convert<Element>(Compute<Element>(0));
        for (long long t = from; t < to; ++t) output[t * a.output.strides[2]] = zero;
      },
      [&](const Subsequence& subsequence, long long from, long long to) {
        for (long long t = from; t < to; ++t) convolve_position<Chains>(a, subsequence, channel, t);
      },
      [&](const Subsequence& last_subsequence) { keep_state<typename Chains::Pre>(a, last_subsequence, channel); });
}

template <class Element>
__global__ void __launch_bounds__(kSequencesThreads)
    sequences_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  using Chains = ElementwiseChains<Element>;
  if (blockIdx.x >= a.tiles) return keep_states<typename Chains::Pre>(a, blockIdx.x - a.tiles);
  const long long item = static_cast<long long>(blockIdx.x) * kSequencesThreads + threadIdx.x;
  const long long inner = a.across ? a.channels : a.position_blocks, outer = a.across ? a.position_blocks : a.channels;
  const long long upper = item / inner, row = upper / outer;
  if (row >= a.batch) return;
  const long long channel = a.across ? item - upper * inner : upper - row * outer;
  const long long position_block = a.across ? upper - row * outer : item - upper * inner;
  const long long first = position_block * kSequencesPositions;
  convolve_positions<Chains>(a, row, channel, first, min_of(first + kSequencesPositions, a.length));
}

}  // namespace sluice
