// Sums of one thread's patch. A window yields the image rows under it as 16-byte words, from memory (direct.cuh)
// or from a stage (staged.cuh), and each row is used for every row of the patch that it meets:
//
//   image row 0    wwww  ->  output row 0, row 0 of the kernel
//             1    wwww  ->  output row 1, row 0;  output row 0, row 1
//             2    wwww  ->  output row 2, row 0;  output row 1, row 1;  output row 0, row 2
//             ...
//
// A row's words are as in memory. The patch's values start `shift` bytes into the first word and are shifted out of
// pairs of words, so that tap j of a tap word always meets values j, j + 1, ... in the registers:
//
//   words     |xxxxxxxx|xxxxxxxx|xxxxxxxx|xxxxxxxx|
//   values         |vvvvvvvv|vvvvvvvv|                a tap word: as many taps as a word has elements
//                   then, a word further,  |vvvvvvvv|vvvvvvvv|
//
// All kernels but toeplitz.cuh sum in this order, rows of the kernel and in them taps, ascending: so their results have
// the same bits.
#pragma once

#include "kernels/operators/filter2d/arguments.cuh"
#include "kernels/shared/stages/epilogue.cuh"

namespace sluice {

// A block's tile of the output: its channel and its first element. The column is negative by the output's misalignment.
struct Filter2dTile {
  long long batch, channel, row, column;
};

template <int Rows, class Element>
__device__ __forceinline__ Filter2dTile tile_at(const Filter2dArguments<Element>& a, long long index) {
  const long long upper = a.by_across.quotient(index), plane = a.by_down.quotient(upper);
  Filter2dTile tile;
  tile.batch = a.by_channels.quotient(plane);
  tile.channel = plane - tile.batch * a.channels;
  tile.row = (upper - plane * a.by_down.divisor) * (kFilter2dThreads / a.lanes * Rows);
  tile.column =
      (index - upper * a.by_across.divisor) *
      (a.lanes * kPatchColumns<Element>)-a.template misalignment<kWordElements<Element>>(tile.batch, tile.channel);
  return tile;
}

// A thread's outputs (row + r, column + j) with 0 <= r < rows and first <= j < last.
struct Patch {
  long long batch, channel, row, column;
  int rows, first, last;
  __device__ bool empty() const { return rows <= 0 || first >= last; }
};

template <int Rows, class Element>
__device__ __forceinline__ Patch patch_at(const Filter2dArguments<Element>& a, const Filter2dTile& tile) {
  constexpr int kColumns = kPatchColumns<Element>;
  const int below = threadIdx.x / a.lanes, lane = threadIdx.x - below * a.lanes;
  Patch patch{tile.batch, tile.channel, tile.row + below * Rows, tile.column + lane * kColumns, 0, 0, 0};
  patch.rows = static_cast<int>(min_of<long long>(Rows, a.output_height - patch.row));
  patch.first = patch.column < 0 ? static_cast<int>(-patch.column) : 0;
  patch.last = static_cast<int>(min_of<long long>(kColumns, a.output_width - patch.column));
  return patch;
}

__device__ __forceinline__ Word shifted(const Word& low, const Word& high, int shift) {
  return shift == 0 ? low : shift_words(low, high, shift);
}

// `body(c, values)` for each tap word of one row: its tap j meets values[j], values[j + 1], ...
template <class Element, class Row, class Body>
__device__ __forceinline__ void for_each_tap_word(const Row& row, int tap_words, Body&& body) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kHeld = kPatchWords<Element>, kColumns = kPatchColumns<Element>;
  T values[kColumns + kWidth];
  Word words[kHeld + 1];
#pragma unroll
  for (int w = 0; w <= kHeld; ++w) words[w] = row.word(w);
  Word ahead = row.word(kHeld + 1);
#pragma unroll
  for (int w = 0; w < kHeld; ++w) unpack<Element>(shifted(words[w], words[w + 1], row.shift), values + w * kWidth);
  Word last = words[kHeld];
#pragma unroll 1
  for (int c = 0; c < tap_words; ++c) {
    const Word next = ahead;
    if (c + 1 < tap_words) ahead = row.word(kHeld + 2 + c);  // in flight while this tap word is summed
    unpack<Element>(shifted(last, next, row.shift), values + kColumns);
    last = next;
    body(c, values);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) values[j] = values[j + kWidth];
  }
}

// A whole tap word from shared memory.
template <class Element, class T>
__device__ __forceinline__ void read_tap_word(const T* taps, T (&tap_word)[kWordElements<Element>]) {
  constexpr int kWords = kWordElements<Element> * static_cast<int>(sizeof(T)) / kWordBytes;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const Word word = load_word(reinterpret_cast<const char*>(taps) + w * kWordBytes);
    __builtin_memcpy(tap_word + w * (kWordBytes / sizeof(T)), &word, sizeof(Word));
  }
}

// Initialises the sums with biases.
template <int Count, class Element, class T>
__device__ __forceinline__ void start_sums(const Filter2dArguments<Element>& a, long long channel, T (&sums)[Count]) {
  const T bias = a.bias_of(channel);
#pragma unroll
  for (int j = 0; j < Count; ++j) sums[j] = bias;
}

// Taps of a non-separable kernel, in shared memory in load_taps' layout.
template <class Element, class T>
struct SharedTaps {
  const T* taps;
  int pitch;

  __device__ T at(int i, int j) const { return taps[i * pitch + j]; }
  __device__ void tap_word(int i, int j, T (&values)[kWordElements<Element>]) const {
    read_tap_word<Element>(taps + i * pitch + j, values);
  }
};

// The same, in the caller's memory.
template <class Element>
struct MemoryTaps {
  using T = Compute<Element>;
  const Filter2dArguments<Element>& a;
  long long channel;

  __device__ T at(int i, int j) const { return a.tap(channel, i, j); }
  __device__ void tap_word(int i, int j, T (&values)[kWordElements<Element>]) const {
#pragma unroll
    for (int k = 0; k < kWordElements<Element>; ++k) values[k] = at(i, j + k);
  }
};

template <int Columns, class T>
__device__ __forceinline__ void add_products(T tap, const T* values, T* sums) {
#pragma unroll
  for (int j = 0; j < Columns; ++j) sums[j] = multiply_add(tap, values[j], sums[j]);
}

// A non-separable kernel of any size.
template <int Rows, class Element, class Window, class Taps, class T>
__device__ __forceinline__ void add_full_taps(const Filter2dArguments<Element>& a, const Window& window,
                                              const Taps& taps, T* sums) {
  constexpr int kWidth = kWordElements<Element>, kColumns = kPatchColumns<Element>;
#pragma unroll 1
  for (int i = 0; i < Rows + a.kernel_height - 1; ++i) {
    // Row i of the window meets row r of the patch under row i - r of the kernel, if that exists.
    const auto exists = [&](int r) { return i - r >= 0 && i - r < a.kernel_height; };
    for_each_tap_word<Element>(window.row(i), a.tap_words, [&](int c, const T* values) {
      const int left = a.kernel_width - c * kWidth;
      if (left >= kWidth) {
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          if (!exists(r)) continue;
          T tap_word[kWidth];
          taps.tap_word(i - r, c * kWidth, tap_word);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) add_products<kColumns>(tap_word[k], values + k, sums + r * kColumns);
        }
      } else {
#pragma unroll
        for (int k = 0; k < kWidth - 1; ++k) {
          if (k >= left) break;  // not a product with zero: the window may hold infinities
#pragma unroll
          for (int r = 0; r < Rows; ++r) {
            if (exists(r)) add_products<kColumns>(taps.at(i - r, c * kWidth + k), values + k, sums + r * kColumns);
          }
        }
      }
    });
  }
}

// A column of taps times a row of taps: each row of the window is filtered across once, then added to all rows of the
// patch that it meets.
template <int Rows, class Element, class Window, class T>
__device__ __forceinline__ void add_separable(const Filter2dArguments<Element>& a, const Window& window, const T* taps,
                                              T* sums) {
  constexpr int kWidth = kWordElements<Element>, kColumns = kPatchColumns<Element>;
  const T* const column = taps + a.tap_words * kWidth;
#pragma unroll 1
  for (int i = 0; i < Rows + a.kernel_height - 1; ++i) {
    T across[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) across[j] = T(0);
    for_each_tap_word<Element>(window.row(i), a.tap_words, [&](int c, const T* values) {
      const int left = a.kernel_width - c * kWidth;
      if (left >= kWidth) {
        T tap_word[kWidth];
        read_tap_word<Element>(taps + c * kWidth, tap_word);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) add_products<kColumns>(tap_word[k], values + k, across);
      } else {
#pragma unroll
        for (int k = 0; k < kWidth - 1; ++k) {
          if (k >= left) break;
          add_products<kColumns>(taps[c * kWidth + k], values + k, across);
        }
      }
    });
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (i - r < 0 || i - r >= a.kernel_height) continue;
      add_products<kColumns>(column[i - r], across, sums + r * kColumns);
    }
  }
}

// A kernel of Side x Side taps in registers, on a window that is inside the image. Rows are loaded two ahead of their
// use.
template <int Side, int Rows, class Element, class Window, class T>
__device__ __forceinline__ void add_square(const Window& window, const T (&taps)[Side * Side], T* sums) {
  constexpr int kWidth = kWordElements<Element>, kColumns = kPatchColumns<Element>;
  constexpr int kShifted = kPatchWords<Element> + ceil_div(Side - 1, kWidth), kInputs = Rows + Side - 1, kAhead = 2;
  Word words[kInputs][kShifted + 1];
  int shifts[kInputs];
  const auto load = [&](int i) {
    const auto row = window.row(i);
    shifts[i] = row.shift;
#pragma unroll
    for (int w = 0; w <= kShifted; ++w) words[i][w] = row.inner_word(w);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i);
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    if (i + kAhead < kInputs) load(i + kAhead);
    T values[kShifted * kWidth];
#pragma unroll
    for (int w = 0; w < kShifted; ++w) {
      unpack<Element>(shifted(words[i][w], words[i][w + 1], shifts[i]), values + w * kWidth);
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (i - r < 0 || i - r >= Side) continue;
#pragma unroll
      for (int k = 0; k < Side; ++k) add_products<kColumns>(taps[(i - r) * Side + k], values + k, sums + r * kColumns);
    }
  }
}

// Applies `post` to the sums, some rows at a time, and stores them.
template <class Post, int Rows, class Element, class T>
__device__ __forceinline__ void finish_patch(const Filter2dArguments<Element>& a, const Patch& patch, const T* sums) {
  constexpr int kColumns = kPatchColumns<Element>, kValues = kChainRows * kColumns;
#pragma unroll 1
  for (int g = 0; g < Rows; g += kChainRows) {
    T values[kValues];
#pragma unroll
    for (int h = 0; h < Rows; h += kChainRows) {
      if (g != h) continue;  // registers cannot be indexed: the chain is compiled once, not once per kChainRows rows
#pragma unroll
      for (int j = 0; j < kValues; ++j) values[j] = sums[h * kColumns + j];
    }
    const auto last_of = [&](int r) { return g + r < patch.rows ? patch.last : 0; };
    const auto place_of = [&](const long long* strides, int r) {
      const long long first = patch.batch * strides[0] + patch.channel * strides[1] + (patch.row + g) * strides[2] +
                              patch.column * strides[3];
      return Place{.offset = first + r * strides[2], .stride = strides[3], .first = patch.first, .last = last_of(r)};
    };
    finish_slices<Post, kColumns, kChainRows>(a.post, a.output, a.output_type(), place_of, values);
  }
}

}  // namespace sluice
