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
inline constexpr int kPairedChannels = 16, kMatrixBytes = 32;

// A unit's tiles in shared memory, from a tap on.
struct UnitTiles {
  std::uint32_t inputs, weights;  // `weights`: of the tap, of the warpgroup's first channel
  int row, row_step;              // the warp's first row for the tap; rows from a tap to the next
  int tap_step;                   // bytes from a tap's weights to the next tap's
  int taps;
};

// Where a lane reads the matrices of a tap. Tiles are aligned, so that a step's bytes are bits of a word's address.
template <int RowBytes>
struct TapMatrices {
  std::uint32_t row;      // address of the lane's word of the first step, before the permutation
  std::uint32_t columns;  // address of the lane's word of the first step

  __device__ __forceinline__ explicit TapMatrices(const UnitTiles& unit) {
    const auto lane = static_cast<std::uint32_t>(own_lane());
    row = unit.inputs + (unit.row + lane % 16) * RowBytes + lane / 16 * 16;
    columns = swizzled(unit.weights + (lane / 16 * 8 + lane % 8) * RowBytes + lane / 8 % 2 * 16, RowBytes);
  }
  __device__ __forceinline__ void advance(int rows, int weight_bytes) {
    row += rows * RowBytes;
    columns += weight_bytes;
  }
  __device__ __forceinline__ void load_rows(int step, int block, std::uint32_t (&to)[4]) const {
    load_matrices((swizzled(row, RowBytes) ^ step * kMatrixBytes) + block * 64 * RowBytes, to);
  }
  __device__ __forceinline__ void load_columns(int step, int pair, ColumnMatrices& to) const {
    load_matrices((columns ^ step * kMatrixBytes) + pair * kPairedChannels * RowBytes, to);
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
__device__ __forceinline__ void multiply_taps(const UnitTiles& unit, DenseSums<Blocks, Channels>& sums) {
  constexpr bool kRounds = std::is_same_v<Element, float>;
  TapMatrices<RowBytes> tap(unit);
#pragma unroll 1
  for (int left = unit.taps; left > 0; --left, tap.advance(unit.row_step, unit.tap_step)) {
    multiply_tap<kRounds, Steps, RowBytes, Element, Blocks, Channels>(tap, sums);
  }
}

// The same for both parts of float32, of which the low parts are so many bytes further. Tensor cores cut the sums of
// their products, so they sum no more than a tap.
template <int Steps, int RowBytes, int Blocks, int Channels>
__device__ __forceinline__ void multiply_split_taps(const UnitTiles& unit, std::uint32_t low_inputs,
                                                    std::uint32_t low_weights, DenseSums<Blocks, Channels>& sums) {
  TapMatrices<RowBytes> tap(unit);
#pragma unroll 1
  for (int left = unit.taps; left > 0; --left, tap.advance(unit.row_step, unit.tap_step)) {
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {  // low by high and high by low, then high by high
      DenseSums<Blocks, Channels> own = {};
#pragma unroll 1
      for (int mixed = pass; mixed < 2; ++mixed) {
        TapMatrices<RowBytes> parts = tap;
        if (pass == 0 && mixed == 0) parts.row += low_inputs;
        if (pass == 0 && mixed == 1) parts.columns += low_weights;
        multiply_tap</*Rounds=*/false, Steps, RowBytes, float, Blocks, Channels>(parts, own);
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
