// The multiplying warpgroups of the dense kernel keep a tile's sums in registers. Each k-step (32 bytes of a tap's
// input channels) is Blocks products of 64 positions by all channels of the tile.
//
//   cooperative   warpgroup 0    positions 0 .. 64 Blocks - 1 of every tile
//                 warpgroup 1    the other half
//   ping-pong     warpgroup 0    tiles 0, 2, ..     one multiplies while the other stores its tile, and begins when
//                 warpgroup 1    tiles 1, 3, ..     all of the other's products are in flight
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/shared/mma/wgmma.cuh"

namespace sluice {

// The first of a warpgroup's positions in a tile.
template <int Blocks>
__device__ __forceinline__ int first_position(const DenseArguments& a, int warpgroup) {
  return a.is_pingpong ? 0 : warpgroup * 64 * Blocks;
}

template <int Blocks, int Channels>
using DenseSums = float[Blocks][Channels / 2];

// Waits until this warpgroup may multiply, or lets the other warpgroup. Hardware barriers 1 and 2 are load_bias's.
__device__ __forceinline__ void await_order(int warpgroup) {
  asm volatile("bar.sync %0, 256;" : : "r"(3 + warpgroup) : "memory");
}
__device__ __forceinline__ void pass_order(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" : : "r"(4 - warpgroup) : "memory");
}

// One tile's sums over `Steps` k-steps of each row; `is_last`: the block's last tile. A tap is one wgmma group: its
// fence, products and commit must be consecutive, or ptxas forms its own groups and waits for all of them. Stages are
// released one tap late, when their products have completed.
template <int Steps, int RowBytes, class Element, int Blocks, int Channels, class Arguments>
__device__ __forceinline__ void multiply_rows(const Arguments& a, int group_or_split, std::uint32_t inputs,
                                              std::uint32_t weights, DenseShared& shared, int warpgroup, bool is_last,
                                              PipelineState& input, PipelineState& weight,
                                              DenseSums<Blocks, Channels>& sums) {
  const bool signals = threadIdx.x % 128 == 0;
  int keep = 0;
  int weight_before = -1, input_before = -1;
  const auto give_back = [&] {
    if (signals && weight_before >= 0) arrive(shared.weight_empty + weight_before);
    if (signals && input_before >= 0) arrive(shared.input_empty + input_before);
    weight_before = input_before = -1;
  };
  for (ResidueStep step; step.k_block < a.k_blocks_of(group_or_split); step.advance(a)) {
    if (a.begins_stage(step.residue)) wait_for_phase(shared.input_full + input.stage, input.parity);
    std::uint64_t rows = tile_descriptor(inputs + input.stage * a.input_stage_bytes(), RowBytes) +
                         descriptor_step((a.first_row(step.residue) + first_position<Blocks>(a, warpgroup)) * RowBytes);
    const int taps = a.taps_of(step.residue);
    for (int k = 0; k < taps; k += a.stage_taps) {
      wait_for_phase(shared.weight_full + weight.stage, weight.parity);
      std::uint64_t columns = tile_descriptor(weights + weight.stage * a.weight_stage_bytes(Channels), RowBytes);
      for (int left = min_of(a.stage_taps, taps - k); left > 0; --left) {
        fence_products();
#pragma unroll
        for (int s = 0; s < Steps; ++s) {
#pragma unroll
          for (int m = 0; m < Blocks; ++m) {
            multiply_tiles<Element, Channels>(sums[m], rows + descriptor_step(m * 64 * RowBytes + s * 32),
                                              columns + descriptor_step(s * 32), keep);
          }
          keep = 1;
        }
        commit_products();
        rows += descriptor_step(a.row_step() * RowBytes);
        columns += descriptor_step(Channels * RowBytes);
        wait_for_products<1>();
        give_back();
      }
      if (!a.resident) weight_before = weight.stage;
      weight.advance(a.weight_stages);
      if (a.resident) weight.parity = 0;
    }
    if (!a.ends_stage(step.residue)) continue;
    input_before = input.stage;
    input.advance(a.input_stages);
  }
  if (a.is_pingpong && !is_last) pass_order(warpgroup);
  wait_for_products<0>();
  give_back();
}

template <class Element, int Blocks, int Channels, class Arguments, class... Rest>
__device__ __forceinline__ void multiply_tile(const Arguments& a, Rest&&... rest) {
  if (a.partial_steps() == 3) return multiply_rows<3, 128, Element, Blocks, Channels>(a, rest...);
  switch (a.row_bytes) {
    case 128: return multiply_rows<4, 128, Element, Blocks, Channels>(a, rest...);
    case 64: return multiply_rows<2, 64, Element, Blocks, Channels>(a, rest...);
    default: return multiply_rows<1, 32, Element, Blocks, Channels>(a, rest...);
  }
}

}  // namespace sluice
