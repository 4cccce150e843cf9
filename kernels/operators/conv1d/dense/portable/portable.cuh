// Dense conv1d on the tensor cores of compute capability 8.0 and later (mma.sync), by a ring of asynchronous copies.
//
//   unit      some taps of a residue of a k-block: |input rows of all of them| weights of each |
//   ring      | unit | unit | unit | ..      producers copy units while stages are free, consumers multiply the oldest
//   warps     0 .. 3 and 4 .. 7: two warpgroups of consumers, of half of a tile's positions each, or of tiles beside
//             each other; 8 .. 11: producers
//
// One tile of input rows serves all of a unit's taps: a tap reads it from its own row on. The plan, the packed weight,
// the residues of a stride, the splits and the epilogue are the 9.0 kernel's (dense.cuh): a warp's sums lie in its
// registers as wgmma's do.
#pragma once

#include "kernels/operators/conv1d/dense/dense.cuh"
#include "kernels/operators/conv1d/dense/portable/fetch.cuh"
#include "kernels/operators/conv1d/dense/portable/multiply.cuh"
#include "kernels/operators/conv1d/dense/portable/portable.h"

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

// Changes the words of a unit's rows in place, by all consumers.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void change_unit(const Arguments& a, const Unit& unit, const DenseTile& tile,
                                            std::uint32_t rows) {
  const ThreadWords own(a, static_cast<int>(threadIdx.x), kPortableConsumers);
  change_copies<Pre, Element>(a, own, rows, tile.batch, tile.group_or_split, own.channel<Element>(a, unit.k_block),
                              unit.position);
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

  UnitPipe pipe(shared.ring, a.input_stages);
  if (pipe.produces()) {
    UnitWalk<Channels, Arguments> walk(a);
    UnitSource<Pre, Element, Channels, Arguments> source(a, walk);
    if (a.resident) source.copy_all_weights(resident);
    while (!walk.has_ended()) {
      pipe.producer_acquire();
      source.fetch(walk, ring + pipe.stage() * stage_bytes);
      if (UnitPipe::thread() == 0) shared.units[pipe.stage()] = source.unit(walk);
      pipe.producer_commit();
      if (walk.advance() && !walk.has_ended()) source.begin_tile(walk.tile());
    }
    return;
  }
  const bool changes = a.fetch == DenseFetch::channels && changes_copies<Pre, Element>(a);
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    DenseSums<Blocks, Channels> sums = {};
    for (bool has_ended = false; !has_ended; pipe.consumer_release()) {
      pipe.consumer_wait();
      const std::uint32_t from = ring + pipe.stage() * stage_bytes;
      const Unit& unit = shared.units[pipe.stage()];
      if (changes) {
        change_unit<Pre, Element>(a, unit, dense_tile(a, index, Channels * a.columns()), from);
        pipe.consumer_sync();
      }
      const std::uint32_t columns = a.is_pingpong ? warpgroup * Channels * a.row_bytes : 0;
      multiply_unit<IsSplit, Element, Blocks, Channels>(
          a,
          UnitTiles{.inputs = from,
                    .weights = (a.resident ? resident : from) + unit.weights + columns,
                    .row = first_position<Blocks>(a, warpgroup) + warp * 16,
                    .row_step = a.row_step(),
                    .tap_step = a.next_weights,
                    .taps = unit.taps},
          sums);
      has_ended = unit.ends_tile;
    }
    finish_portable_tile<typename Chains::Post, Element, Blocks, Channels, ByPositions>(a, index, shared, warpgroup,
                                                                                        sums);
  }
}

template <class Chains, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void portable(const Arguments& a) {
  if constexpr (std::is_same_v<Element, float> && Blocks * Channels / 2 <= kMostSplitSums) {
    if (a.parts == 2) return portable_tiles<Chains, true, Element, Blocks, Channels, ByPositions>(a);
  }
  portable_tiles<Chains, false, Element, Blocks, Channels, ByPositions>(a);
}

template <class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__global__ void __launch_bounds__(kPortableThreads, 1) portable_kernel(const __grid_constant__ Arguments a) {
  portable<NoChains, Element, Blocks, Channels, ByPositions>(a);
}

// Its chains are linked in, as the other dense kernels' are.
template <class Arguments, class Element, int Blocks, int Channels, bool ByPositions>
struct InterpretedPortable {
  static Kernel<Arguments> of(const Conv1dParams& params) {
    if (!params.pre.empty() || !params.post.empty()) return nullptr;
    return portable_kernel<Element, Blocks, Channels, ByPositions, Arguments>;
  }
};
template <class Element, int Blocks, int Channels>
struct Interpreted<PortableKernel::portable_channels, Element, Blocks, Channels>
    : InterpretedPortable<PortableDenseArguments, Element, Blocks, Channels, /*ByPositions=*/false> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<PortableKernel::portable_positions, Element, Blocks, Channels>
    : InterpretedPortable<PortableDenseArguments, Element, Blocks, Channels, /*ByPositions=*/true> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<PortableKernel::portable_interleaved, Element, Blocks, Channels>
    : InterpretedPortable<PortableInterleavedArguments, Element, Blocks, Channels, /*ByPositions=*/false> {};

}  // namespace sluice
