// The multiplying warpgroups of the dense kernel keep a tile's sums in registers. Each k-step (32 bytes of a tap's
// input channels) is Blocks products of 64 positions by all channels of the tile.
//
//   cooperative   warpgroup 0    positions 0 .. 64 Blocks - 1 of every tile
//                 warpgroup 1    the other half
//   ping-pong     warpgroup 0    tiles 0, 2, ..     one multiplies while the other stores its tile, and begins when
//                 warpgroup 1    tiles 1, 3, ..     all of the other's products are in flight
//
// Split products (kernels/shared/mma/tf32.h) are cooperative: a warpgroup adds its sums while the other multiplies.
#pragma once

#include <type_traits>

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/shared/mma/tf32.h"
#include "kernels/shared/mma/wgmma.cuh"

namespace sluice {

// The first of a warpgroup's positions in a tile.
template <int Blocks>
__device__ __forceinline__ int first_position(const DenseArguments& a, int warpgroup) {
  return a.is_pingpong ? 0 : warpgroup * 64 * Blocks;
}

template <int Blocks, int Channels>
using DenseSums = float[Blocks][Channels / 2];

// Waits for the other warps of this warpgroup.
__device__ __forceinline__ void await_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");
}

// Waits until this warpgroup may multiply, or lets the other warpgroup.
__device__ __forceinline__ void await_order(int warpgroup) {
  asm volatile("bar.sync %0, 256;" : : "r"(3 + warpgroup) : "memory");
}
__device__ __forceinline__ void pass_order(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" : : "r"(4 - warpgroup) : "memory");
}

// A tap's products as one wgmma group: its fence, products and commit must be consecutive, or ptxas forms its own
// groups and waits for all of them. `multiply(block, row, column, step)` enqueues the products of a k-step, which are
// so far from the start of the tap's rows and columns.
template <int Steps, int RowBytes, int Blocks, class Multiply>
__device__ __forceinline__ void multiply_group(const Multiply& multiply) {
  fence_products();
#pragma unroll
  for (int s = 0; s < Steps; ++s) {
#pragma unroll
    for (int m = 0; m < Blocks; ++m) {
      multiply(m, start_step(m * 64 * RowBytes + s * 32), start_step(s * 32), s);
    }
  }
  commit_products();
}

template <int Steps, int RowBytes, class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_tap(std::uint32_t rows, std::uint32_t columns, int keep,
                                             DenseSums<Blocks, Channels>& sums) {
  multiply_group<Steps, RowBytes, Blocks>([&](int m, std::uint32_t row, std::uint32_t column, int s) {
    multiply_tiles<Element, Channels, RowBytes>(sums[m], rows + row, columns + column, s > 0 ? 1 : keep);
  });
}

// sums += scale tap, when the tap's products have completed.
template <int Blocks, int Channels>
__device__ __forceinline__ void add_tap(DenseSums<Blocks, Channels>& tap, float scale,
                                        DenseSums<Blocks, Channels>& sums) {
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < Blocks * Channels / 2; ++i) {
    float& own = tap[i / (Channels / 2)][i % (Channels / 2)];
    float& sum = sums[i / (Channels / 2)][i % (Channels / 2)];
    asm volatile("" : "+f"(own) : : "memory");  // not read before the wait
    sum = fmaf(own, scale, sum);
  }
}

// A tap's products of both parts of float32, added to `sums`: first of a low and a high part, then of high parts.
// Tensor cores cut the sums of their products, so they sum no more than a tap.
template <int Steps, int RowBytes, int Blocks, int Channels>
__device__ __forceinline__ void multiply_split_tap(std::uint32_t rows, std::uint32_t low_rows, std::uint32_t columns,
                                                   std::uint32_t low_columns, DenseSums<Blocks, Channels>& tap,
                                                   DenseSums<Blocks, Channels>& sums) {
  multiply_group<Steps, RowBytes, Blocks>([&](int m, std::uint32_t row, std::uint32_t column, int s) {
    multiply_tiles<float, Channels, RowBytes>(tap[m], low_rows + row, columns + column, s > 0);
    multiply_tiles<float, Channels, RowBytes>(tap[m], rows + row, low_columns + column, 1);
  });
  add_tap<Blocks, Channels>(tap, 1 / kLowScale, sums);
  multiply_tap<Steps, RowBytes, float, Blocks, Channels>(rows, columns, 0, tap);
  add_tap<Blocks, Channels>(tap, 1, sums);
}

// One tile's sums over `Steps` k-steps of each row; `is_last`: the block's last tile. Stages are released one tap late,
// when their products have completed; split products complete with their tap.
template <bool IsSplit, int Steps, int RowBytes, class Element, int Blocks, int Channels, class Arguments>
__device__ __forceinline__ void multiply_rows(const Arguments& a, int group_or_split, std::uint32_t inputs,
                                              std::uint32_t weights, DenseShared& shared, int warpgroup, bool is_last,
                                              PipelineState& input, PipelineState& weight,
                                              DenseSums<Blocks, Channels>& sums) {
  const bool signals = threadIdx.x % 128 == 0;
  int keep = 0;
  DenseSums<Blocks, Channels> tap;
  // Where sums change between tiles, ptxas serialises the products of the next tile unless they start from zeros
  // (C7515).
  if constexpr (IsSplit || Arguments::kJoinsSplits) {
#pragma unroll
    for (int i = 0; i < Blocks * Channels / 2; ++i) {
      sums[i / (Channels / 2)][i % (Channels / 2)] = tap[i / (Channels / 2)][i % (Channels / 2)] = 0.0f;
    }
  }
  int weight_before = -1, input_before = -1;
  const auto give_back = [&] {
    if (signals && weight_before >= 0) arrive(shared.weight_empty + weight_before);
    if (signals && input_before >= 0) arrive(shared.input_empty + input_before);
    weight_before = input_before = -1;
  };
  for (ResidueStep step; step.k_block < a.k_blocks_of(group_or_split); step.advance(a)) {
    if (a.begins_stage(step.residue)) wait_for_phase(shared.input_full + input.stage, input.parity);
    std::uint32_t rows = tile_start(inputs + input.stage * a.input_stage_bytes()) +
                         start_step((a.first_row(step.residue) + first_position<Blocks>(a, warpgroup)) * RowBytes);
    const int taps = a.taps_of(step.residue);
    for (int k = 0; k < taps; k += a.stage_taps) {
      wait_for_phase(shared.weight_full + weight.stage, weight.parity);
      std::uint32_t columns = tile_start(weights + weight.stage * a.weight_stage_bytes(Channels));
      for (int left = min_of(a.stage_taps, taps - k); left > 0; --left) {
        if constexpr (IsSplit) {
          const std::uint32_t low_rows = rows + start_step(a.input_part_bytes()),
                              low_columns = columns + start_step(Channels * RowBytes);
          multiply_split_tap<Steps, RowBytes, Blocks, Channels>(rows, low_rows, columns, low_columns, tap, sums);
          columns = low_columns;
        } else {
          multiply_tap<Steps, RowBytes, Element, Blocks, Channels>(rows, columns, keep, sums);
          keep = 1;
        }
        rows += start_step(a.row_step() * RowBytes);
        columns += start_step(Channels * RowBytes);
        wait_for_products<1>();
        give_back();
      }
      if (!a.resident) weight_before = weight.stage;
      if (IsSplit) give_back();
      weight.advance(a.weight_stages);
      if (a.resident) weight.parity = 0;
    }
    if (!a.ends_stage(step.residue)) continue;
    input_before = input.stage;
    if (IsSplit) give_back();
    input.advance(a.input_stages);
  }
  if (a.is_pingpong && !is_last) pass_order(warpgroup);
  wait_for_products<0>();
  give_back();
}

template <bool IsSplit, class Element, int Blocks, int Channels, class Arguments, class... Rest>
__device__ __forceinline__ void multiply_whole_rows(const Arguments& a, Rest&&... rest) {
  switch (a.row_bytes) {
    case 128: return multiply_rows<IsSplit, 4, 128, Element, Blocks, Channels>(a, rest...);
    case 64: return multiply_rows<IsSplit, 2, 64, Element, Blocks, Channels>(a, rest...);
    default: return multiply_rows<IsSplit, 1, 32, Element, Blocks, Channels>(a, rest...);
  }
}

template <bool IsSplit, class Element, int Blocks, int Channels, class Arguments, class... Rest>
__device__ __forceinline__ void multiply_tile(const Arguments& a, Rest&&... rest) {
  if (!IsSplit && a.partial_steps() == 3) {
    return multiply_rows<false, 3, 128, Element, Blocks, Channels>(a, rest...);
  }
  multiply_whole_rows<IsSplit, Element, Blocks, Channels>(a, rest...);
}

}  // namespace sluice
