// Sums over taps, from memory into registers, for depthwise convolutions and stencils on the CPU.
//
//   along a row        output[i] = bias    + sum_k weights[k]    from[offsets[k] + i]
//   over positions     output[r] = bias[c] + sum_k weights[k, c] from[offsets[k] + r step + c],   c: lanes
//
// Every output is summed in the order of its taps, whatever its neighbours: tiles and the number of threads do not
// change a result.
#pragma once

#include "kernels/shared/cpu/sum_vectors.h"

namespace sluice {
namespace {

template <class T>
struct Taps {
  int count;
  const long long* offsets;
  const T* weights;  // weights: along a row a number each, else a vector of channels each, `pitch` apart
  long long pitch;
};

// This many taps are summed separately, then added: the error of a long sum grows with its square root.
inline constexpr int kTapsInASum = 256;

// N contiguous vectors of sums: as pairs, or one.
template <class T, int N>
struct Sums {
  static constexpr int kPairs = N / 2;
  Pair<T> pair[kPairs > 0 ? kPairs : 1];

  SLUICE_HOST_DEVICE void operator+=(const Sums& other) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n += 2) {
      pair[n / 2].first += other.pair[n / 2].first;
      if constexpr (N > 1) pair[n / 2].second += other.pair[n / 2].second;
    }
  }
  template <class Element>
  SLUICE_HOST_DEVICE void add(const Element* from, const Sums& weight) {
    if constexpr (N == 1) {
      pair[0].first = multiply_add(load_vector<T>(from), weight.pair[0].first, pair[0].first);
    } else {
#pragma GCC unroll 8
      for (int n = 0; n < kPairs; ++n) {
        const Pair<T> values = load_pair<T>(from + 2 * n * kLanes<T>);
        pair[n].first = multiply_add(values.first, weight.pair[n].first, pair[n].first);
        pair[n].second = multiply_add(values.second, weight.pair[n].second, pair[n].second);
      }
    }
  }
  SLUICE_HOST_DEVICE void add(const Sums& values, const Sums& weight) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n += 2) {
      pair[n / 2].first = multiply_add(values.pair[n / 2].first, weight.pair[n / 2].first, pair[n / 2].first);
      if constexpr (N > 1) {
        pair[n / 2].second = multiply_add(values.pair[n / 2].second, weight.pair[n / 2].second, pair[n / 2].second);
      }
    }
  }
  // Otherwise the compiler folds the load into each product with the values.
  SLUICE_HOST_DEVICE void keep() {
#pragma GCC unroll 8
    for (int n = 0; n < N; n += 2) {
      pair[n / 2].first = in_register(pair[n / 2].first);
      if constexpr (N > 1) pair[n / 2].second = in_register(pair[n / 2].second);
    }
  }
  template <class Element>
  SLUICE_HOST_DEVICE static Sums load(const Element* from) {
    Sums sums;
    if constexpr (N == 1) {
      sums.pair[0].first = load_vector<T>(from);
    } else {
#pragma GCC unroll 8
      for (int n = 0; n < kPairs; ++n) sums.pair[n] = load_pair<T>(from + 2 * n * kLanes<T>);
    }
    return sums;
  }
  SLUICE_HOST_DEVICE static Sums all(T value) {
    Sums sums;
#pragma GCC unroll 8
    for (int n = 0; n < N; n += 2) sums.pair[n / 2] = {broadcast(value), broadcast(value)};
    return sums;
  }
  template <class Element, class To>
  SLUICE_HOST_DEVICE void store(To* to) const {
    if constexpr (N == 1) {
      store_vector<T>(to, pair[0].first);
    } else {
#pragma GCC unroll 8
      for (int n = 0; n < kPairs; ++n) store_pair_like<Element>(to + 2 * n * kLanes<T>, pair[n]);
    }
  }
};

template <int N, class T, class Element>
SLUICE_HOST_DEVICE void add_taps(const Element* from, const Taps<T>& taps, int first, int last, Sums<T, N>& sums) {
  for (int k = first; k < last; ++k) sums.add(from + taps.offsets[k], Sums<T, N>::all(taps.weights[k]));
}

// The end of the partial sum that starts at tap `first`.
SLUICE_HOST_DEVICE int end_of_sum(int first, int count) {
  return count - first < kTapsInASum ? count : first + kTapsInASum;
}

template <int N, class T, class Element, class To>
SLUICE_HOST_DEVICE void sum_vectors(const Element* from, const Taps<T>& taps, T bias, To* to) {
  Sums<T, N> sums = Sums<T, N>::all(bias);
  add_taps(from, taps, 0, end_of_sum(0, taps.count), sums);
  for (int first = kTapsInASum; first < taps.count; first += kTapsInASum) {
    Sums<T, N> part = Sums<T, N>::all(0);
    add_taps(from, taps, first, end_of_sum(first, taps.count), part);
    sums += part;
  }
  sums.template store<Element>(to);
}

// `count` outputs of a row, at least a vector of them: the last vector overlaps the vector before it.
template <class T, class Element, class To>
void sum_row(const Element* from, const Taps<T>& taps, T bias, To* to, long long count) {
  constexpr int kWidth = kLanes<T>;
  long long i = 0;
  for (; i + 8 * kWidth <= count; i += 8 * kWidth) sum_vectors<8>(from + i, taps, bias, to + i);
  const auto rest = [&]<int N>() {
    if (i + N * kWidth > count) return;
    sum_vectors<N>(from + i, taps, bias, to + i);
    i += N * kWidth;
  };
  rest.template operator()<4>();
  rest.template operator()<2>();
  rest.template operator()<1>();
  if (i < count) sum_vectors<1>(from + count - kWidth, taps, bias, to + count - kWidth);
}

template <int R, int N, class T, class Element>
SLUICE_HOST_DEVICE void add_channel_taps(const Element* from, long long step, const Taps<T>& taps, const T* weights,
                                         int first, int last, Sums<T, N> (&sums)[R]) {
  for (int k = first; k < last; ++k) {
    const Sums<T, N> weight = Sums<T, N>::load(weights + k * taps.pitch);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r].add(from + taps.offsets[k] + r * step, weight);
  }
}

// N vectors of channels at R positions.
template <int R, int N, class T, class Element, class To>
SLUICE_HOST_DEVICE void sum_channel_vectors(const Element* from, long long step, const Taps<T>& taps, const T* weights,
                                            const T* bias, To* to, long long to_step) {
  Sums<T, N> sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = Sums<T, N>::load(bias);
  add_channel_taps(from, step, taps, weights, 0, end_of_sum(0, taps.count), sums);
  for (int first = kTapsInASum; first < taps.count; first += kTapsInASum) {
    Sums<T, N> part[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) part[r] = Sums<T, N>::all(0);
    add_channel_taps(from, step, taps, weights, first, end_of_sum(first, taps.count), part);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] += part[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r].template store<Element>(to + r * to_step);
}

inline constexpr int kPositionsAtOnce = 4;

// Puts weights or biases of `channels` channels into sum_positions' order for an input of `Element`.
template <class Element, class T>
void order_channels(T* values, long long channels) {
  if constexpr (kEvenAndOdd<Element>) {
    for (long long c = 0; c + 2 * kLanes<T> <= channels; c += 2 * kLanes<T>) {
      const Pair<T> split = split_pair(load_pair<T>(values + c));
      store_vector<T>(values + c, split.first);
      store_vector<T>(values + c + kLanes<T>, split.second);
    }
  }
}

// `count` positions of `channels` channels, which are whole vectors; weights and bias in order_channels' order.
template <class T, class Element, class To>
void sum_positions(const Element* from, long long step, const Taps<T>& taps, const T* bias, To* to, long long to_step,
                   long long channels, long long count) {
  constexpr int kWidth = kLanes<T>;
  const auto positions = [&]<int R>(long long r) {
    long long c = 0;
    const Element* const source = from + r * step;
    To* const target = to + r * to_step;
    for (; c + 2 * kWidth <= channels; c += 2 * kWidth) {
      sum_channel_vectors<R, 2>(source + c, step, taps, taps.weights + c, bias + c, target + c, to_step);
    }
    if (c < channels) {
      sum_channel_vectors<R, 1>(source + c, step, taps, taps.weights + c, bias + c, target + c, to_step);
    }
  };
  long long r = 0;
  for (; r + kPositionsAtOnce <= count; r += kPositionsAtOnce) positions.template operator()<kPositionsAtOnce>(r);
  for (; r < count; ++r) positions.template operator()<1>(r);
}

}  // namespace
}  // namespace sluice
