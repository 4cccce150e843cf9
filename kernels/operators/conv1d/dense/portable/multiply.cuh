// A unit's products, by a warp: 16 of each block of 64 positions by its warpgroup's channels, on ldmatrix and mma.sync.
//
//   input rows        weights of a tap
//   row r   |ci ..|   |ci ..|  channel 0          sums += rows r .. by all channels, 32 bytes of input channels a step
//   row r+1 |ci ..|   |ci ..|  channel 1
//    ..                ..                         the next tap: rows r + d ..
//
// Matrices are loaded ahead of the products that take them.
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

// A unit's tiles in shared memory, from a tap on.
struct UnitTiles {
  std::uint32_t inputs, weights;  // `weights`: of the tap, of the warpgroup's first channel
  int row, row_step;              // the warp's first row for the tap; rows from a tap to the next
  int tap_step;                   // bytes from a tap's weights to the next tap's
  int taps;
};

// Where a warp reads the matrices of a tap.
template <int RowBytes>
struct TapMatrices {
  MatrixRow<RowBytes> rows, columns;

  __device__ __forceinline__ explicit TapMatrices(const UnitTiles& unit)
      : rows(unit.inputs, unit.row + own_lane() % 16, own_lane() / 16),
        columns(unit.weights, own_lane() / 16 * 8 + own_lane() % 8, own_lane() / 8 % 2) {}
  __device__ __forceinline__ void load_rows(int step, int block, std::uint32_t (&to)[4]) const {
    load_matrices(rows.address(step, block * 64), to);
  }
  __device__ __forceinline__ void load_columns(int step, int pair, ColumnMatrices& to) const {
    load_matrices(columns.address(step, pair * kPairedChannels), to);
  }
};

// sums += the products of a block's rows and sixteen channels.
template <class Element, int Channels>
__device__ __forceinline__ void multiply_pair(const std::uint32_t (&rows)[4], const ColumnMatrices& columns, int pair,
                                              float (&sums)[Channels / 2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    multiply_add<Element>(reinterpret_cast<float (&)[4]>(sums[pair * 8 + half * 4]), rows,
                          make_uint2(columns[half * 2], columns[half * 2 + 1]));
  }
}

// Rounds float32 to TF32, which the products would cut.
__device__ __forceinline__ void round_rows(std::uint32_t (&rows)[4]) {
#pragma unroll
  for (std::uint32_t& element : rows) element = round_to_tf32(element);
}

// sums += the products of some steps of a tap. The next step's rows of a block are loaded behind its last products of a
// step, which leaves registers for 64 x 64 sums of a warp.
template <bool Rounds, int Steps, int RowBytes, class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_steps(const TapMatrices<RowBytes>& tap, int first,
                                               DenseSums<Blocks, Channels>& sums) {
  constexpr int kPairs = Channels / kPairedChannels;
  RowMatrices<Blocks> rows;
  ColumnMatrices columns[2];
  tap.load_columns(first, 0, columns[0]);
#pragma unroll
  for (int m = 0; m < Blocks; ++m) tap.load_rows(first, m, rows[m]);
#pragma unroll
  for (int i = 0; i < Steps * kPairs; ++i) {
    const int step = i / kPairs, pair = i % kPairs;
    if (i + 1 < Steps * kPairs) tap.load_columns(first + (i + 1) / kPairs, (i + 1) % kPairs, columns[(i + 1) % 2]);
#pragma unroll
    for (int m = 0; m < Blocks; ++m) {
      if (Rounds && pair == 0) round_rows(rows[m]);
      multiply_pair<Element, Channels>(rows[m], columns[i % 2], pair, sums[m]);
      if (pair + 1 == kPairs && step + 1 < Steps) tap.load_rows(first + step + 1, m, rows[m]);
    }
  }
}

template <bool Rounds, int Steps, int RowBytes, class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_tap(const TapMatrices<RowBytes>& tap, DenseSums<Blocks, Channels>& sums) {
  constexpr int kAtOnce = Steps < 2 ? Steps : 2;  // with all four, ptxas moves sums from register to register
#pragma unroll 1
  for (int step = 0; step < Steps; step += kAtOnce) {
    multiply_steps<Rounds, kAtOnce, RowBytes, Element, Blocks, Channels>(tap, step, sums);
  }
}

// sums += the products of the unit's taps.
template <int Steps, int RowBytes, class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_taps(UnitTiles unit, DenseSums<Blocks, Channels>& sums) {
  constexpr bool kRounds = std::is_same_v<Element, float>;
#pragma unroll 1
  for (; unit.taps > 0; --unit.taps, unit.row += unit.row_step, unit.weights += unit.tap_step) {
    multiply_tap<kRounds, Steps, RowBytes, Element, Blocks, Channels>(TapMatrices<RowBytes>(unit), sums);
  }
}

// The same for both parts of float32, of which the low parts are so many bytes further. Tensor cores cut the sums of
// their products, so they sum no more than a tap.
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
        multiply_tap</*Rounds=*/false, Steps, RowBytes, float, Blocks, Channels>(TapMatrices<RowBytes>(parts), own);
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
