// Sums over small square windows of rows in the cache: each value is loaded once for the outputs of several rows.
#pragma once

#include "kernels/common/tap_sums_cpu.h"

namespace sluice {
namespace {

inline constexpr int kSquareRows = 4;

// N vectors of each of kSquareRows rows, in the order of taps that sum_row has.
template <int Side, int N, class T, class To>
SLUICE_INLINE void sum_square_vectors(const T* from, long long pitch, const T* weights, T bias, To* to,
                                      long long to_pitch) {
  Vector<T> sums[kSquareRows][N];
#pragma GCC unroll 16
  for (int y = 0; y < kSquareRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums[y][n] = broadcast(bias);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kSquareRows + Side - 1; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < Side; ++j) {
      Vector<T> values[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) values[n] = load_vector(from + r * pitch + j + n * kLanes<T>);
#pragma GCC unroll 16
      for (int y = 0; y < kSquareRows; ++y) {
        if (r < y || r - y >= Side) continue;
        const Vector<T> weight = broadcast(weights[(r - y) * Side + j]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) sums[y][n] = multiply_add(values[n], weight, sums[y][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int y = 0; y < kSquareRows; ++y) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store_vector(to + y * to_pitch + n * kLanes<T>, sums[y][n]);
  }
}

// As many rows as there are groups of kSquareRows; returns how many. At least a vector of columns.
template <int Side, class T, class To>
long long sum_squares(const T* from, long long pitch, const T* weights, T bias, To* to, long long to_pitch,
                      long long columns, long long rows) {
  constexpr int kWidth = kLanes<T>;
  long long y = 0;
  for (; y + kSquareRows <= rows; y += kSquareRows) {
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

}  // namespace
}  // namespace sluice
