// A Fourier transform of 4096 complex points and its inverse, by 256 threads with 16 points each: three radix-16
// passes. Plain functions of a thread's number, so that a test runs the same code on the host, thread after thread.
//
//   position  n = n0 + 16 n1 + 256 n2       thread (n1, n0) holds all n2
//      | 16 points over n2, times w4096^((n0 + 16 n1) k0)        all threads exchange
//      |                                    thread (k0, n0) holds all n1
//      | 16 points over n1, times w256^(n0 k1)                   the 16 threads of a k0 exchange
//      |                                    thread (k0, k1) holds all n0
//      v 16 points over n0
//   frequency k = k0 + 16 k1 + 256 k2       thread (k0, k1) holds all k2
//
// The inverse takes the same steps in reverse with real and imaginary parts swapped, which conjugates every root.
// Frequencies are not reordered in between: the product is elementwise.
//
// Points are exchanged through shared memory, which is 16 rows, one for each k0:
//
//   with all threads    row k0, place t           written and read with consecutive t: no bank conflicts
//   within a row        row k0, place 17 k1 + n0  written with consecutive n0 and read with consecutive k1: 17 is odd
#pragma once

#include <cmath>

#include "kernels/shared/common/qualifiers.h"

// For loops that index a thread's registers; not needed on the host.
#ifdef __CUDACC__
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL
#endif

namespace sluice {

inline constexpr int kFourierRadix = 16;
inline constexpr int kFourierThreads = 256;
inline constexpr int kFourierPoints = kFourierRadix * kFourierThreads;
inline constexpr int kRowPlaces = 17 * kFourierRadix;
inline constexpr int kExchangePlaces = kFourierRadix * kRowPlaces;

struct alignas(8) Complex {
  float re, im;
};

SLUICE_HOST_DEVICE Complex times(Complex a, Complex b) {
  return {fmaf(a.re, b.re, -(a.im * b.im)), fmaf(a.re, b.im, a.im * b.re)};
}

// A thread's points.
struct Points {
  float re[kFourierRadix], im[kFourierRadix];

  SLUICE_HOST_DEVICE Complex at(int i) const { return {re[i], im[i]}; }
  SLUICE_HOST_DEVICE void set(int i, Complex value) { re[i] = value.re, im[i] = value.im; }
};

// Powers of a root w, from which the others below 16 are one product away.
inline constexpr int kKeptRoots = 6;
SLUICE_HOST_DEVICE constexpr int kept_power(int i) { return i < 4 ? i + 1 : 4 * (i - 2); }
struct Roots {
  Complex kept[kKeptRoots];  // w^kept_power(i): 1, 2, 3, 4, 8, 12

  SLUICE_HOST_DEVICE Complex power(int i) const {
    const int low = i % 4, high = i / 4;
    if (high == 0) return kept[low - 1];
    if (low == 0) return kept[high + 2];
    return times(kept[high + 2], kept[low - 1]);
  }
};
// A thread's root among all threads is exp(-2 pi i x / 4096) with x its number; within a row x is kWithinRow * lane.
inline constexpr int kWithinRow = 16;
SLUICE_HOST_DEVICE int row_of_thread(int thread) { return thread / kFourierRadix; }
SLUICE_HOST_DEVICE int lane_of_row(int thread) { return thread % kFourierRadix; }

// points[i] times w^i.
SLUICE_HOST_DEVICE void rotate(Points& points, const Roots& roots) {
  SLUICE_UNROLL
  for (int i = 1; i < kFourierRadix; ++i) points.set(i, times(points.at(i), roots.power(i)));
}

SLUICE_HOST_DEVICE void transform4(Complex& a, Complex& b, Complex& c, Complex& d) {
  const Complex p{a.re + c.re, a.im + c.im}, q{a.re - c.re, a.im - c.im};
  const Complex r{b.re + d.re, b.im + d.im}, s{b.re - d.re, b.im - d.im};
  a = {p.re + r.re, p.im + r.im};
  b = {q.re + s.im, q.im - s.re};
  c = {p.re - r.re, p.im - r.im};
  d = {q.re - s.im, q.im + s.re};
}

// 16 points, in order before and after: four columns of four, a root each, four rows of four.
SLUICE_HOST_DEVICE void transform16(Points& points) {
  constexpr float kEighth = 0.92387953251128675613f, kHalf = 0.70710678118654752440f, kRest = 0.38268343236508977173f;
  Complex z[4][4];  // [column][row]
  SLUICE_UNROLL
  for (int column = 0; column < 4; ++column) {
    SLUICE_UNROLL
    for (int row = 0; row < 4; ++row) z[column][row] = points.at(column + 4 * row);
    transform4(z[column][0], z[column][1], z[column][2], z[column][3]);
  }
  const auto diagonal = [](Complex a) { return Complex{(a.re + a.im) * kHalf, (a.im - a.re) * kHalf}; };  // w16^2
  const auto rotated = [](Complex a) { return Complex{a.im, -a.re}; };                                    // w16^4
  z[1][1] = times(z[1][1], {kEighth, -kRest});
  z[1][2] = diagonal(z[1][2]);
  z[1][3] = times(z[1][3], {kRest, -kEighth});
  z[2][1] = diagonal(z[2][1]);
  z[2][2] = rotated(z[2][2]);
  z[2][3] = rotated(diagonal(z[2][3]));
  z[3][1] = times(z[3][1], {kRest, -kEighth});
  z[3][2] = rotated(diagonal(z[3][2]));
  z[3][3] = times(z[3][3], {-kEighth, kRest});
  SLUICE_UNROLL
  for (int row = 0; row < 4; ++row) {
    transform4(z[0][row], z[1][row], z[2][row], z[3][row]);
    SLUICE_UNROLL
    for (int column = 0; column < 4; ++column) points.set(row + 4 * column, z[column][row]);
  }
}

SLUICE_HOST_DEVICE void swap_parts(Points& points) {
  SLUICE_UNROLL
  for (int i = 0; i < kFourierRadix; ++i) points.set(i, {points.im[i], points.re[i]});
}

// --- exchanges: a thread's i-th point goes to, and comes from ---------------------------------------------------
SLUICE_HOST_DEVICE int place_of_all(int thread, int i) { return thread + i * kRowPlaces; }  // i: the row
SLUICE_HOST_DEVICE int place_in_row(int thread, int i) {                                    // as place_of_all wrote it
  return row_of_thread(thread) * kRowPlaces + lane_of_row(thread) + i * kFourierRadix;
}
SLUICE_HOST_DEVICE int place_across(int thread, int i) {  // i: k1; the lane: n0
  return row_of_thread(thread) * kRowPlaces + lane_of_row(thread) + i * 17;
}
SLUICE_HOST_DEVICE int place_along(int thread, int i) {  // i: n0; the lane: k1
  return row_of_thread(thread) * kRowPlaces + lane_of_row(thread) * 17 + i;
}

template <class Place>
SLUICE_HOST_DEVICE void put(Complex* exchange, int thread, const Points& points, const Place& place) {
  Complex* const own = exchange + place(thread, 0);
  // The differences are constants, so they become offsets of one address.
  SLUICE_UNROLL
  for (int i = 0; i < kFourierRadix; ++i) own[place(0, i)] = points.at(i);
}
template <class Place>
SLUICE_HOST_DEVICE void get(const Complex* exchange, int thread, Points& points, const Place& place) {
  const Complex* const own = exchange + place(thread, 0);
  SLUICE_UNROLL
  for (int i = 0; i < kFourierRadix; ++i) points.set(i, own[place(0, i)]);
}

struct OfAll {
  SLUICE_HOST_DEVICE int operator()(int thread, int i) const { return place_of_all(thread, i); }
};
struct InRow {
  SLUICE_HOST_DEVICE int operator()(int thread, int i) const { return place_in_row(thread, i); }
};
struct Across {
  SLUICE_HOST_DEVICE int operator()(int thread, int i) const { return place_across(thread, i); }
};
struct Along {
  SLUICE_HOST_DEVICE int operator()(int thread, int i) const { return place_along(thread, i); }
};

// --- the transform and its inverse --------------------------------------------------------------------------------
// A team is one thread on a GPU, and all threads on a host: each(f) calls f(thread, points) for them, sync_all() is a
// barrier of all and sync_row() one of the 16 of a row; all_roots(thread) gives the roots of a thread's number,
// row_roots(thread) the roots of its lane. After there() and back() other threads may still read the exchange.
template <class Team>
SLUICE_HOST_DEVICE void there(const Team& team, Complex* exchange) {
  team.each([&](int thread, Points& points) {
    transform16(points);
    rotate(points, team.all_roots(thread));
    put(exchange, thread, points, OfAll{});
  });
  team.sync_all();
  team.each([&](int thread, Points& points) {
    get(exchange, thread, points, InRow{});
    transform16(points);
    rotate(points, team.row_roots(thread));
  });
  team.sync_row();
  team.each([&](int thread, Points& points) { put(exchange, thread, points, Across{}); });
  team.sync_row();
  team.each([&](int thread, Points& points) {
    get(exchange, thread, points, Along{});
    transform16(points);
  });
}

// Without the division by the number of points.
template <class Team>
SLUICE_HOST_DEVICE void back(const Team& team, Complex* exchange) {
  team.each([&](int thread, Points& points) {
    swap_parts(points);
    transform16(points);
    rotate(points, team.row_roots(thread));
  });
  team.sync_row();
  team.each([&](int thread, Points& points) { put(exchange, thread, points, Along{}); });
  team.sync_row();
  team.each([&](int thread, Points& points) {
    get(exchange, thread, points, Across{});
    transform16(points);
  });
  team.sync_row();
  team.each([&](int thread, Points& points) { put(exchange, thread, points, InRow{}); });
  team.sync_all();
  team.each([&](int thread, Points& points) {
    get(exchange, thread, points, OfAll{});
    rotate(points, team.all_roots(thread));
    transform16(points);
    swap_parts(points);
  });
}

// `sum` plus a times b.
SLUICE_HOST_DEVICE Complex add_product(Complex a, Complex b, Complex sum) {
  return {fmaf(a.re, b.re, fmaf(-a.im, b.im, sum.re)), fmaf(a.re, b.im, fmaf(a.im, b.re, sum.im))};
}

// --- powers of two, which scale a segment and a filter near 1 and their product back ------------------------------
// From the bits of the largest finite magnitude. Values of 2^127 and more are scaled to below 4, not 2.
inline constexpr int kFiniteExponents = 255, kExponentOfOne = 127, kLogPoints = 12;
SLUICE_HOST_DEVICE int biased_exponent(unsigned largest_bits) {
  const int exponent = static_cast<int>(largest_bits >> 23);
  return exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
}
SLUICE_HOST_DEVICE bool is_finite_magnitude(unsigned bits) { return bits >> 23 < kFiniteExponents; }
SLUICE_HOST_DEVICE unsigned bits_of_power(int exponent) {  // -126 ... 127
  return static_cast<unsigned>(exponent + kExponentOfOne) << 23;
}
// 2^exponent as a product of two, because it may be out of the range of one.
struct Scale {
  int first, second;
};
SLUICE_HOST_DEVICE Scale scale_of(int segment_exponent, int filter_exponent) {
  const int exponent = segment_exponent + filter_exponent - 2 * kExponentOfOne - kLogPoints;
  const int least = 1 - kExponentOfOne, half = exponent / 2;  // below twice the least all products vanish
  return {half < least ? least : half, exponent - half < least ? least : exponent - half};
}

}  // namespace sluice

#undef SLUICE_UNROLL
