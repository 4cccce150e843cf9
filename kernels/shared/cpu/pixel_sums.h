// Sums over windows of pixels whose channels are contiguous:
//
//   output[r, c] = bias[c] + sum_{i, j} weights[i, j, c] from[i row + j pixel + r step + c],   c: lanes
//
// in sum_row's order of taps. Taps outside the image, on zeros, are left out.
#pragma once

#include "kernels/shared/cpu/tap_sums.h"

namespace sluice {
namespace {

template <class T, class Element>
struct PixelWindow {
  const Element* from;
  long long row, pixel;  // elements from a row, or a pixel, to the next
  int rows, columns;     // rows and columns of taps
  const T* weights;      // weights in the order of an input of `Element` (order_channels)
  long long weight_row, weight_pitch;
  const T* bias;
};

// N vectors of channels at R positions.
template <int R, int N, class T, class Element, class To>
SLUICE_HOST_DEVICE void sum_pixels(const PixelWindow<T, Element>& window, long long offset, long long step, To* to,
                                   long long to_step) {
  Sums<T, N> sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = Sums<T, N>::load(window.bias);
  const Element* from = window.from + offset;
  const T* weights = window.weights;
  for (int i = 0; i < window.rows; ++i, from += window.row, weights += window.weight_row) {
    const Element* value = from;
    const T* tap = weights;
    for (int j = 0; j < window.columns; ++j, value += window.pixel, tap += window.weight_pitch) {
      const Sums<T, N> weight = Sums<T, N>::load(tap);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r].add(value + r * step, weight);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r].template store<Element>(to + r * to_step);
}

// The same for rows of `Columns` taps and positions a pixel apart: each value is loaded once for all its sums.
template <int R, int N, int Columns, class T, class Element, class To>
SLUICE_HOST_DEVICE void sum_neighbours(const PixelWindow<T, Element>& window, long long offset, To* to,
                                       long long to_step) {
  Sums<T, N> sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = Sums<T, N>::load(window.bias);
  const Element* from = window.from + offset;
  const T* weights = window.weights;
  for (int i = 0; i < window.rows; ++i, from += window.row, weights += window.weight_row) {
    Sums<T, N> taps[Columns];
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j) taps[j] = Sums<T, N>::load(weights + j * window.weight_pitch);
#pragma GCC unroll 32
    for (int q = 0; q < R + Columns - 1; ++q) {
      Sums<T, N> value = Sums<T, N>::load(from + q * window.pixel);
      value.keep();
#pragma GCC unroll 16
      for (int j = 0; j < Columns; ++j) {
        if (q < j || q - j >= R) continue;
        sums[q - j].add(value, taps[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r].template store<Element>(to + r * to_step);
}

// Only the first `lanes` channels of a vector, at R positions.
template <int R, class T, class Element, class To>
SLUICE_HOST_DEVICE void sum_part_of_pixels(const PixelWindow<T, Element>& window, long long offset, long long step,
                                           To* to, long long to_step, int lanes) {
  Vector<T> sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = load_vector<T>(window.bias);
  const Element* from = window.from + offset;
  const T* weights = window.weights;
  for (int i = 0; i < window.rows; ++i, from += window.row, weights += window.weight_row) {
    for (int j = 0; j < window.columns; ++j) {
      const Vector<T> weight = load_vector<T>(weights + j * window.weight_pitch);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vector<T> value = load_partial<T>(from + j * window.pixel + r * step, lanes);
        sums[r] = multiply_add(value, weight, sums[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) store_partial<T>(to + r * to_step, sums[r], lanes);
}

// Calls `take.operator()<R>(r)` for batches of positions 0 .. count - 1. The last batch may overlap the previous batch:
// with fewer sums, products would wait for each other.
template <int Most, class Take>
SLUICE_HOST_DEVICE void in_batches(long long count, const Take& take) {
  long long r = 0;
  for (; r + Most <= count; r += Most) take.template operator()<Most>(r);
  if constexpr (Most > 4) {
    if (count - r > 4) {
      if (count >= Most) return take.template operator()<Most>(count - Most);
      take.template operator()<4>(r);
      r += 4;
    }
  }
  if (count - r > 2 && count >= 4) return take.template operator()<4>(count - 4);
  if (count - r >= 2) {
    take.template operator()<2>(r);
    r += 2;
  }
  if (r < count) take.template operator()<1>(r);
}

template <int N>
inline constexpr int kPixelsAtOnce = 8 / N;  // enough independent sums to hide the products' latency

template <class T, class Element, class To>
void sum_parts(const PixelWindow<T, Element>& window, long long step, To* to, long long to_step, long long count,
               int lanes) {
  in_batches<8>(count, [&]<int R>(long long r) SLUICE_IN_PLACE {
    sum_part_of_pixels<R>(window, r * step, step, to + r * to_step, to_step, lanes);
  });
}

template <int N, int Columns, class T, class Element, class To>
void sum_neighbour_row(const PixelWindow<T, Element>& window, long long step, To* to, long long to_step,
                       long long count) {
  in_batches<kPixelsAtOnce<N>>(count, [&]<int R>(long long r) SLUICE_IN_PLACE {
    if constexpr (R >= 4) {
      sum_neighbours<R, N, Columns>(window, r * step, to + r * to_step, to_step);
    } else {
      sum_pixels<R, N>(window, r * step, step, to + r * to_step, to_step);
    }
  });
}

// `count` positions, N vectors of channels.
template <int N, class T, class Element, class To>
void sum_pixel_row(const PixelWindow<T, Element>& window, long long step, To* to, long long to_step, long long count) {
  if (step == window.pixel && count >= 4) {
    if (window.columns == 3) return sum_neighbour_row<N, 3>(window, step, to, to_step, count);
    if (window.columns == 5) return sum_neighbour_row<N, 5>(window, step, to, to_step, count);
    if (window.columns == 7) return sum_neighbour_row<N, 7>(window, step, to, to_step, count);
    if (window.columns == 11) return sum_neighbour_row<N, 11>(window, step, to, to_step, count);
  }
  in_batches<kPixelsAtOnce<N>>(count, [&]<int R>(long long r) SLUICE_IN_PLACE {
    sum_pixels<R, N>(window, r * step, step, to + r * to_step, to_step);
  });
}

}  // namespace
}  // namespace sluice
