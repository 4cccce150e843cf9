// Transposes squares of values in registers: vectors along a row become vectors across channels.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/shared/cpu/vector.h"

namespace sluice {
namespace {

// Swaps bit `D` of an element's vector with that of its lane.
template <int D, class T>
SLUICE_HOST_DEVICE void swap_bit(Vector<T> (&square)[kLanes<T>]) {
  constexpr int kWidth = kLanes<T>;
  Vector<std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>> low, high;
  for (int i = 0; i < kWidth; ++i) {
    low[i] = (i & D) != 0 ? (i ^ D) + kWidth : i;
    high[i] = (i & D) != 0 ? i + kWidth : i ^ D;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if ((i & D) != 0) continue;
    const Vector<T> first = square[i], second = square[i | D];
    square[i] = __builtin_shuffle(first, second, low);
    square[i | D] = __builtin_shuffle(first, second, high);
  }
}

template <class T>
SLUICE_HOST_DEVICE void transpose(Vector<T> (&square)[kLanes<T>]) {
  swap_bit<1, T>(square);
  if constexpr (kLanes<T> > 2) swap_bit<2, T>(square);
  if constexpr (kLanes<T> > 4) swap_bit<4, T>(square);
  if constexpr (kLanes<T> > 8) swap_bit<8, T>(square);
}

}  // namespace
}  // namespace sluice
