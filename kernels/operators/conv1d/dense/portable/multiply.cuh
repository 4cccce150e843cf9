// A unit's products, by a warp: 16 of each block of 64 positions by its warpgroup's channels, on ldmatrix and mma.sync.
//
//   input rows        weights of a tap
//   row r   |ci ..|   |ci ..|  channel 0          sums += rows r .. by all channels, 32 bytes of input channels a step
//   row r+1 |ci ..|   |ci ..|  channel 1
//    ..                ..                         the next tap: rows r + d ..
//
// The next step's matrices are loaded ahead of a step's products.
#pragma once

#include "kernels/operators/conv1d/dense/multiply.cuh"
#include "kernels/operators/conv1d/dense/portable/arguments.cuh"
#include "kernels/shared/mma/mma_sync.cuh"

namespace sluice {

template <int Blocks, int Channels>
struct StepMatrices {
  std::uint32_t rows[Blocks][4], columns[Channels / 16][4];
};

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

// Where a warp reads the matrices of a tap.
template <int RowBytes>
struct TapMatrices {
  MatrixRow<RowBytes> rows, columns;

  // `row`: the tap's first row for the warp, in the tile of rows at `inputs`; `weights`: the warpgroup's weights.
  __device__ __forceinline__ TapMatrices(std::uint32_t inputs, int row, std::uint32_t weights, int lane)
      : rows(inputs, row + lane % 16, lane / 16), columns(weights, lane / 16 * 8 + lane % 8, lane / 8 % 2) {}

  template <int Blocks, int Channels>
  __device__ __forceinline__ void load(int step, StepMatrices<Blocks, Channels>& to) const {
#pragma unroll
    for (int m = 0; m < Blocks; ++m) load_matrices(rows.address(step, m * 64), to.rows[m]);
#pragma unroll
    for (int n = 0; n < Channels / 16; ++n) load_matrices(columns.address(step, n * 16), to.columns[n]);
  }
};

template <class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_step(const StepMatrices<Blocks, Channels>& step,
                                              DenseSums<Blocks, Channels>& sums) {
#pragma unroll
  for (int n = 0; n < Channels / 8; ++n) {
    const uint2 columns = {step.columns[n / 2][n % 2 * 2], step.columns[n / 2][n % 2 * 2 + 1]};
#pragma unroll
    for (int m = 0; m < Blocks; ++m) {
      multiply_add<Element>(reinterpret_cast<float (&)[4]>(sums[m][n * 4]), step.rows[m], columns);
    }
  }
}

// sums += the products of `taps` taps. `tap_of(i)`: the i-th tap's TapMatrices.
template <int Steps, class Element, int Blocks, int Channels, class TapOf>
__device__ __forceinline__ void multiply_taps(int taps, const TapOf& tap_of, DenseSums<Blocks, Channels>& sums) {
  StepMatrices<Blocks, Channels> steps[2];
  auto tap = tap_of(0);
  tap.load(0, steps[0]);
#pragma unroll 1
  for (int i = 0; i < taps; ++i) {
#pragma unroll
    for (int s = 0; s < Steps; ++s) {
      if (s + 1 < Steps) {
        tap.load(s + 1, steps[(s + 1) % 2]);
      } else if (i + 1 < taps) {
        tap = tap_of(i + 1);
        tap.load(0, steps[Steps % 2]);
      }
      multiply_step<Element>(steps[s % 2], sums);
    }
    if constexpr (Steps % 2 == 1) steps[0] = steps[1];
  }
}

// Both parts of float32. Tensor cores cut the sums of their products, so they sum no more than a tap.
template <int Steps, int Blocks, int Channels, class TapOf>
__device__ __forceinline__ void multiply_split_taps(int taps, const TapOf& tap_of, DenseSums<Blocks, Channels>& sums) {
#pragma unroll 1
  for (int i = 0; i < taps; ++i) {
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // low by high and high by low, then high by high
      DenseSums<Blocks, Channels> own = {};
#pragma unroll 1
      for (int mixed = pass; mixed < 2; ++mixed) {
        const auto tap = tap_of(i, pass == 0 && mixed == 0, pass == 0 && mixed == 1);
#pragma unroll
        for (int s = 0; s < Steps; ++s) {
          StepMatrices<Blocks, Channels> step;
          tap.load(s, step);
          multiply_step<float>(step, own);
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

// A unit's tiles in shared memory.
struct UnitTiles {
  std::uint32_t inputs, weights;  // `weights`: of the first tap, of the warpgroup's first channel
  int tap_step;                   // bytes from a tap's weights to the next tap's
  int row;                        // the warp's first row for the first tap
  int taps;
};

template <bool IsSplit, int Steps, int RowBytes, class Element, int Blocks, int Channels, class Arguments>
__device__ __forceinline__ void multiply_unit(const Arguments& a, const UnitTiles& unit,
                                              DenseSums<Blocks, Channels>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row_step = a.row_step();
  if constexpr (IsSplit) {
    const std::uint32_t low_input = a.input_part_bytes(), low_weight = a.columns() * Channels * RowBytes;
    multiply_split_taps<Steps, Blocks, Channels>(
        unit.taps,
        [&](int i, bool low_rows, bool low_columns) {
          return TapMatrices<RowBytes>(unit.inputs + (low_rows ? low_input : 0), unit.row + i * row_step,
                                       unit.weights + i * unit.tap_step + (low_columns ? low_weight : 0), lane);
        },
        sums);
  } else {
    multiply_taps<Steps, Element, Blocks, Channels>(
        unit.taps,
        [&](int i) {
          return TapMatrices<RowBytes>(unit.inputs, unit.row + i * row_step, unit.weights + i * unit.tap_step, lane);
        },
        sums);
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
