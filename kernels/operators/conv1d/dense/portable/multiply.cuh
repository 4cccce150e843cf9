// A unit's products, by a warp: 16 of each block of 64 positions by its warpgroup's channels, on ldmatrix and mma.sync.
//
//   input rows        weights of a tap
//   row r   |ci ..|   |ci ..|  channel 0          sums += rows r .. by all channels, 32 bytes of input channels a step
//   row r+1 |ci ..|   |ci ..|  channel 1
//    ..                ..                         the next tap: rows r + d ..
//
// Matrices are loaded ahead of the products that take them: rows a step, and columns sixteen channels.
#pragma once

#include "kernels/operators/conv1d/dense/epilogue_tile.cuh"
#include "kernels/operators/conv1d/dense/multiply.cuh"
#include "kernels/operators/conv1d/dense/portable/arguments.cuh"
#include "kernels/shared/mma/mma_sync.cuh"

namespace sluice {

template <int Blocks>
using RowMatrices = std::uint32_t[Blocks][4];  // 16 positions of each block by 32 bytes of input channels
using ColumnMatrices = std::uint32_t[4];       // 16 output channels by as many
inline constexpr int kPairedChannels = 16;

// A lane's row of a swizzled tile in shared memory: where it starts, and how its words are permuted.
template <int RowBytes>
struct MatrixRow {
  std::uint32_t start, word;  // `word`: the lane's 16 bytes of the first step, permuted

  // `row` of the tile at `tile`, and whether the lane reads the step's upper 16 bytes.
  __device__ __forceinline__ MatrixRow(std::uint32_t tile, int row, int is_upper)
      : start(tile + row * RowBytes),
        word(static_cast<std::uint32_t>(is_upper * 16) ^ ((row * RowBytes) >> 3 & (RowBytes - 16))) {}
  // `rows`: multiples of 16 rows further, which have the same permutation.
  __device__ __forceinline__ std::uint32_t address(int step, int rows) const {
    return start + (word ^ static_cast<std::uint32_t>(step * 32)) + rows * RowBytes;
  }
};

// A unit's tiles in shared memory.
struct UnitTiles {
  std::uint32_t inputs, weights;  // `weights`: of the first tap, of the warpgroup's first channel
  int row, row_step;              // the warp's first row for the first tap; rows from a tap to the next
  int tap_step;                   // bytes from a tap's weights to the next tap's
  int taps;
};

// Where a warp reads the matrices of a tap.
template <int RowBytes>
struct TapMatrices {
  MatrixRow<RowBytes> rows, columns;

  __device__ __forceinline__ explicit TapMatrices(const UnitTiles& unit)
      : rows(rows_from(unit.inputs, unit.row)),
        columns(unit.weights, own_lane() / 16 * 8 + own_lane() % 8, own_lane() / 8 % 2) {}

  // `row`: of the tile at `inputs`, the tap's first for the warp.
  __device__ __forceinline__ static MatrixRow<RowBytes> rows_from(std::uint32_t inputs, int row) {
    return {inputs, row + own_lane() % 16, own_lane() / 16};
  }
  template <int Blocks>
  __device__ __forceinline__ void load_rows(int step, RowMatrices<Blocks>& to) const {
#pragma unroll
    for (int m = 0; m < Blocks; ++m) load_matrices(rows.address(step, m * 64), to[m]);
  }
  __device__ __forceinline__ void load_columns(int step, int pair, ColumnMatrices& to) const {
    load_matrices(columns.address(step, pair * kPairedChannels), to);
  }
  __device__ __forceinline__ TapMatrices next(const UnitTiles& unit, int row) const {
    TapMatrices found = *this;
    found.rows = rows_from(unit.inputs, row);
    found.columns.start += unit.tap_step;
    return found;
  }
};

// sums += the products of a step's rows and sixteen channels.
template <class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_pair(const RowMatrices<Blocks>& rows, const ColumnMatrices& columns, int pair,
                                              DenseSums<Blocks, Channels>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int m = 0; m < Blocks; ++m) {
      multiply_add<Element>(reinterpret_cast<float (&)[4]>(sums[m][pair * 8 + half * 4]), rows[m],
                            make_uint2(columns[half * 2], columns[half * 2 + 1]));
    }
  }
}

// sums += the products of the unit's taps.
template <int Steps, int RowBytes, class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_taps(const UnitTiles& unit, DenseSums<Blocks, Channels>& sums) {
  constexpr int kPairs = Channels / kPairedChannels;
  static_assert(kPairs % 2 == 0);
  RowMatrices<Blocks> rows[2];
  ColumnMatrices columns[2];
  TapMatrices<RowBytes> tap(unit);
  tap.load_rows(0, rows[0]);
  tap.load_columns(0, 0, columns[0]);
  int row = unit.row;
#pragma unroll 1
  for (int left = unit.taps; left > 0; --left) {
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      const bool ends_tap = s + 1 == Steps;
      TapMatrices<RowBytes> ahead = tap;
      if (ends_tap && left > 1) ahead = tap.next(unit, row += unit.row_step);
      const int step = ends_tap ? 0 : s + 1;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (pair == 0 && (!ends_tap || left > 1)) ahead.load_rows(step, rows[(s + 1) % 2]);
        if (pair + 1 < kPairs) {
          tap.load_columns(s, pair + 1, columns[(pair + 1) % 2]);
        } else if (!ends_tap || left > 1) {
          ahead.load_columns(step, 0, columns[0]);
        }
        multiply_pair<Element, Blocks, Channels>(rows[s % 2], columns[pair % 2], pair, sums);
      }
      tap = ahead;
    }
    if constexpr (Steps % 2 == 1) {
#pragma unroll
      for (int i = 0; i < Blocks * 4; ++i) rows[0][i / 4][i % 4] = rows[1][i / 4][i % 4];
    }
  }
}

// Both parts of float32, of which the low parts are so many bytes further. Tensor cores cut the sums of their products,
// so they sum no more than a tap.
template <int Steps, int RowBytes, int Blocks, int Channels>
__device__ __forceinline__ void multiply_split_taps(UnitTiles unit, std::uint32_t low_inputs, std::uint32_t low_weights,
                                                    DenseSums<Blocks, Channels>& sums) {
#pragma unroll 1
  for (; unit.taps > 0; --unit.taps, unit.row += unit.row_step, unit.weights += unit.tap_step) {
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // low by high and high by low, then high by high
      DenseSums<Blocks, Channels> own = {};
#pragma unroll 1
      for (int mixed = pass; mixed < 2; ++mixed) {
        UnitTiles parts = unit;
        if (pass == 0 && mixed == 0) parts.inputs += low_inputs;
        if (pass == 0 && mixed == 1) parts.weights += low_weights;
        const TapMatrices<RowBytes> tap(parts);
#pragma unroll
        for (int s = 0; s < Steps; ++s) {
          RowMatrices<Blocks> rows;
          tap.load_rows(s, rows);
#pragma unroll
          for (int pair = 0; pair < Channels / kPairedChannels; ++pair) {
            ColumnMatrices columns;
            tap.load_columns(s, pair, columns);
            multiply_pair<float, Blocks, Channels>(rows, columns, pair, own);
          }
        }
      }
      const float scale = pass == 0 ? 1 / kLowScale : 1.0f;
#pragma unroll
      for (int k = 0; k < Blocks * Channels / 2; ++k) {
        float& sum = sums[k / (Channels / 2)][k % (Channels / 2)];
        sum = fmaf(own[k / (Channels / 2)][k % (Channels / 2)], scale, sum);
      }
    }
  }
}

template <bool IsSplit, int Steps, int RowBytes, class Element, int Blocks, int Channels, class Arguments>
__device__ __forceinline__ void multiply_unit(const Arguments& a, const UnitTiles& unit,
                                              DenseSums<Blocks, Channels>& sums) {
  if constexpr (IsSplit) {
    multiply_split_taps<Steps, RowBytes, Blocks, Channels>(unit, a.input_part_bytes(),
                                                           a.columns() * Channels * RowBytes, sums);
  } else {
    multiply_taps<Steps, RowBytes, Element, Blocks, Channels>(unit, sums);
  }
}

template <bool IsSplit, class Element, int Blocks, int Channels, class Arguments>
__device__ __forceinline__ void multiply_unit(const Arguments& a, const UnitTiles& unit,
                                              DenseSums<Blocks, Channels>& sums) {
  switch (a.row_bytes) {
    case 128: return multiply_unit<IsSplit, 4, 128, Element, Blocks, Channels>(a, unit, sums);
    case 64: return multiply_unit<IsSplit, 2, 64, Element, Blocks, Channels>(a, unit, sums);
    default: return multiply_unit<IsSplit, 1, 32, Element, Blocks, Channels>(a, unit, sums);
  }
}

}  // namespace sluice
