// Sums over windows of rows in the cache: each value is loaded once for the outputs of several rows, which otherwise
// wait for loads across cache lines.
#pragma once

#include "kernels/shared/cpu/tap_sums.h"

namespace sluice {
namespace {

inline constexpr int kWindowRows = 4;

// A square of taps. N vectors of each of kWindowRows rows, in sum_row's order of taps.
template <int Side, int N, class T, class To>
SLUICE_HOST_DEVICE void sum_square_vectors(const T* from, long long pitch, const T* weights, T bias, To* to,
                                           long long to_pitch) {
  Vector<T> sums[kWindowRows][N];
#pragma GCC unroll 16
  for (int y = 0; y < kWindowRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[y][n] = broadcast(bias);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kWindowRows + Side - 1; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < Side; ++j) {
      Vector<T> values[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) values[n] = in_register(load_vector<T>(from + r * pitch + j + n * kLanes<T>));
#pragma GCC unroll 16
      for (int y = 0; y < kWindowRows; ++y) {
        if (r < y || r - y >= Side) continue;
        const Vector<T> weight = broadcast(weights[(r - y) * Side + j]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) sums[y][n] = multiply_add(values[n], weight, sums[y][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int y = 0; y < kWindowRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store_vector<T>(to + y * to_pitch + n * kLanes<T>, sums[y][n]);
  }
}

// Computes the largest multiple of kWindowRows rows and returns it. Needs at least a vector of columns.
template <int Side, class T, class To>
long long sum_squares(const T* from, long long pitch, const T* weights, T bias, To* to, long long to_pitch,
                      long long columns, long long rows) {
  constexpr int kWidth = kLanes<T>;
  long long y = 0;
  for (; y + kWindowRows <= rows; y += kWindowRows) {
    const T* const source = from + y * pitch;
    To* const target = to + y * to_pitch;
    long long x = 0;
    for (; x + 2 * kWidth <= columns; x += 2 * kWidth) {
      sum_square_vectors<Side, 2>(source + x, pitch, weights, bias, target + x, to_pitch);
    }
    for (; x < columns; x += kWidth) {
      const long long at = x + kWidth <= columns ? x : columns - kWidth;
      sum_square_vectors<Side, 1>(source + at, pitch, weights, bias, target + at, to_pitch);
    }
  }
  return y;
}

// A row of the copy for outputs of rows First .. Last - 1; the first meets row `tap_row` of the taps.
template <int First, int Last, int N, class T>
SLUICE_HOST_DEVICE void add_window_row(const T* from, const T* weights, int tap_row, int width,
                                       Vector<T> (&sums)[kWindowRows][N]) {
  const T* row = weights + tap_row * width;
  for (int j = 0; j < width; ++j, ++row) {
    Vector<T> values[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) values[n] = in_register(load_vector<T>(from + j + n * kLanes<T>));
#pragma GCC unroll 4
    for (int y = First; y < Last; ++y) {
      const Vector<T> weight = broadcast(row[(First - y) * width]);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sums[y][n] = multiply_add(values[n], weight, sums[y][n]);
    }
  }
}

template <int N, class T, class To>
SLUICE_HOST_DEVICE void sum_window_vectors(const T* from, long long pitch, const T* weights, int height, int width,
                                           T bias, To* to, long long to_pitch) {
  static_assert(kWindowRows == 4);
  Vector<T> sums[kWindowRows][N];
#pragma GCC unroll 4
  for (int y = 0; y < kWindowRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[y][n] = broadcast(bias);
  }
  const auto add = [&]<int First, int Last>(int r) {
    add_window_row<First, Last>(from + r * pitch, weights, r - First, width, sums);
  };
  add.template operator()<0, 1>(0);
  if (height == 2) {
    add.template operator()<0, 2>(1);
    add.template operator()<1, 3>(2);
    add.template operator()<2, 4>(3);
  } else {
    add.template operator()<0, 2>(1);
    add.template operator()<0, 3>(2);
    if (height == 3) {
      add.template operator()<1, 4>(3);
    } else {
      for (int r = 3; r < height; ++r) add.template operator()<0, 4>(r);
      add.template operator()<1, 4>(height);
    }
    add.template operator()<2, 4>(height + 1);
  }
  add.template operator()<3, 4>(height + 2);
#pragma GCC unroll 4
  for (int y = 0; y < kWindowRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store_vector<T>(to + y * to_pitch + n * kLanes<T>, sums[y][n]);
  }
}

// The same for `height` rows of `width` taps, height > 1, in one sum.
template <class T, class To>
long long sum_windows(const T* from, long long pitch, const T* weights, int height, int width, T bias, To* to,
                      long long to_pitch, long long columns, long long rows) {
  constexpr int kWidth = kLanes<T>;
  long long y = 0;
  for (; y + kWindowRows <= rows; y += kWindowRows) {
    const T* const source = from + y * pitch;
    To* const target = to + y * to_pitch;
    long long x = 0;
    for (; x + 2 * kWidth <= columns; x += 2 * kWidth) {
      sum_window_vectors<2>(source + x, pitch, weights, height, width, bias, target + x, to_pitch);
    }
    for (; x < columns; x += kWidth) {
      const long long at = x + kWidth <= columns ? x : columns - kWidth;
      sum_window_vectors<1>(source + at, pitch, weights, height, width, bias, target + at, to_pitch);
    }
  }
  return y;
}

}  // namespace
}  // namespace sluice
