// Dense conv1d on the tensor cores of compute capability 8.0 and later (mma.sync), by a ring of asynchronous copies.
//
//   unit      some taps of a residue of a k-block: |input rows of all of them| weights of each |
//   ring      | unit | unit | unit | ..      each thread copies its words of a unit, and all multiply the oldest
//   warps     0 .. 3 and 4 .. 7: two warpgroups, of half of a tile's positions each, or of tiles beside each other
//
// One tile of input rows serves all of a unit's taps: a tap reads it from its own row on. The plan, the packed weight,
// the residues of a stride, the splits and the epilogue are the 9.0 kernel's (dense.cuh): a warp's sums lie in its
// registers as wgmma's do.
#pragma once

#include "kernels/operators/conv1d/dense/dense.cuh"
#include "kernels/operators/conv1d/dense/portable/fetch.cuh"
#include "kernels/operators/conv1d/dense/portable/multiply.cuh"
#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/shared/pipeline/primitives_pipe.cuh"

namespace sluice {

// `index`: of the block's tile.
template <class Post, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void finish_portable_tile(const Arguments& a, int index, DenseShared& shared, int warpgroup,
                                                     DenseSums<Blocks, Channels>& sums) {
  const typename Arguments::Epilogue& epilogue = a;
  DenseTile tile = dense_tile(a, index, Channels * a.columns());
  if (a.is_pingpong) tile.channel += warpgroup * Channels;
  bool is_joined = true;
  if constexpr (Arguments::kJoinsSplits) is_joined = join_splits<Blocks, Channels>(a, index, warpgroup, sums);
  if (!is_joined) return;
  load_bias<Channels>(epilogue, tile, shared, warpgroup);
  finish_tile<Post, Element, Blocks, Channels, ByPositions>(epilogue, tile, shared, warpgroup, sums);
}

template <class Chains, bool IsSplit, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void portable_tiles(const Arguments& a) {
  using Pre = typename Chains::Pre;
  extern __shared__ __align__(kTileAlignment) char memory[];
  const std::uint32_t ring = shared_address(memory), stage_bytes = a.stage_bytes(Channels);
  const std::uint32_t resident = ring + a.input_stages * stage_bytes;
  auto& shared = *reinterpret_cast<PortableShared*>(memory + (resident - ring) + a.resident_bytes(Channels));
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const bool gathers = a.fetch != DenseFetch::channels, changes = !gathers && changes_copies<Pre, Element>(a);

  PrimitivesPipe pipe(shared.ring, {Schedule::primitives, a.input_stages}, /*shares=*/true);
  using Source = TileSource<Element, Channels, Arguments>;
  UnitWalk<Channels, Arguments> ahead(a), unit(a);
  const ThreadWords own(a, static_cast<int>(threadIdx.x), kPortableThreads);
  const std::uint32_t own_word = own.address(a, 0, own.first), own_weight = threadIdx.x * kWordBytes;
  Source source(a, ahead.tile(), own);
  if (a.resident) {
    copy_weights<Channels>(pipe, a, source.weights, source.weight_bytes, a.tap_pitch_bytes, a.k_blocks * a.taps,
                           resident + own_weight);
  }
  DenseSums<Blocks, Channels> sums;
  const int tap_bytes = a.tap_bytes(Channels);
  const std::uint32_t first_weight = a.is_pingpong ? warpgroup * Channels * a.row_bytes : 0;
  const int first_row = first_position<Blocks>(a, warpgroup) + warp * 16;

  const auto fetch = [&](long long, int stage) {
    const std::uint32_t to = ring + stage * stage_bytes;
    if (gathers) {
      gather_rows<Pre, Element>(a, ahead, to);
    } else {
      copy_rows(pipe, a, ahead, source, own, to + own_word);
    }
    if (!a.resident) {
      const long long taps = (ahead.k_block * a.taps + ahead.first_tap()) * a.tap_pitch_bytes;
      copy_weights<Channels>(pipe, a, source.weights + taps, source.weight_bytes, a.tap_step() * a.tap_pitch_bytes,
                             ahead.taps(), to + a.input_stage_bytes() + own_weight);
    }
    if (ahead.advance() && ahead.index < a.tiles) source = Source(a, ahead.tile(), own);
  };
  const auto compute = [&](long long, int stage) {
    const std::uint32_t from = ring + stage * stage_bytes;
    if (changes) {
      const DenseTile tile = unit.tile();
      change_copies<Pre, Element>(a, own, from, tile.batch, tile.group_or_split, own.channel<Element>(a, unit.k_block),
                                  a.input_position(tile.position, unit.residue) + unit.tap * a.tap_positions);
      pipe.consumer_sync();
    }
    if (unit.begins_tile()) {
#pragma unroll
      for (int i = 0; i < Blocks * Channels / 2; ++i) sums[i / (Channels / 2)][i % (Channels / 2)] = 0.0f;
    }
    const std::uint32_t weights =
        a.resident ? resident + (unit.k_block * a.taps + unit.first_tap()) * tap_bytes : from + a.input_stage_bytes();
    multiply_unit<IsSplit, Element, Blocks, Channels>(a,
                                                      UnitTiles{.inputs = from,
                                                                .weights = weights + first_weight,
                                                                .row = first_row,
                                                                .row_step = a.row_step(),
                                                                .tap_step = tap_bytes * (a.resident ? a.tap_step() : 1),
                                                                .taps = unit.taps()},
                                                      sums);
    const int index = unit.index;
    if (unit.advance()) {
      finish_portable_tile<typename Chains::Post, Element, Blocks, Channels, ByPositions>(a, index, shared, warpgroup,
                                                                                          sums);
    }
  };
  run_ring(pipe, a.input_stages, 0, unit.count(), 1, fetch, compute);
}

template <class Chains, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void portable(const Arguments& a) {
  if constexpr (std::is_same_v<Element, float> && portable_sums(Blocks, Channels) <= kMostSplitSums) {
    if (a.parts == 2) return portable_tiles<Chains, true, Element, Blocks, Channels, ByPositions>(a);
  }
  portable_tiles<Chains, false, Element, Blocks, Channels, ByPositions>(a);
}

template <class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__global__ void __launch_bounds__(kPortableThreads, portable_blocks(sizeof(Element), portable_sums(Blocks, Channels)))
    portable_kernel(const __grid_constant__ Arguments a) {
  portable<NoChains, Element, Blocks, Channels, ByPositions>(a);
}

// Its chains are linked in, as the other dense kernels' are.
template <class Element, int Blocks, int Channels, bool ByPositions>
struct InterpretedPortable {
  static Kernel<PortableDenseArguments> of(const Conv1dParams& params) {
    if (!params.pre.empty() || !params.post.empty()) return nullptr;
    return portable_kernel<Element, Blocks, Channels, ByPositions, PortableDenseArguments>;
  }
};
template <class Element, int Blocks, int Channels>
struct Interpreted<PortableKernel::portable_channels, Element, Blocks, Channels>
    : InterpretedPortable<Element, Blocks, Channels, /*ByPositions=*/false> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<PortableKernel::portable_positions, Element, Blocks, Channels>
    : InterpretedPortable<Element, Blocks, Channels, /*ByPositions=*/true> {};

}  // namespace sluice
