// Dense conv1d on tensor cores: one tile of the input in shared memory serves every tap.
//
//   y[l, co] = sum over taps k and input channels ci of  x[l - padding + k dilation, ci] w[k][co, ci]
//
//   stage of the input: 32, 64 or 128 bytes wide          sums: 64 positions x the tile's channels a product
//   row 0   |ci ..|  l0 - padding                         tap 0: rows 0 ..
//   row 1   |     |  l0 - padding + 1                     tap 1: rows d ..        the same tile, from row d on
//    ...                                                   ...
//
// With a stride the rows of a stage are positions of one residue, or of all, residue by residue (residues.h).
//
//   warpgroups 0, 1   warps 0 .. 6: input [ stage | stage | .. ]    warp 7: weights [ stage | stage | .. ]
//                                   full |  ^ empty                             full |  ^ empty
//   warpgroups 2, 3                products, the chain, the store: of half the tile's positions each, or of whole tiles
//                                  alternately (ping-pong)
//
// Blocks are persistent: the next tile's stages are fetched during the previous tile's store.
#pragma once

#include "kernels/operators/conv1d/dense/fetch.cuh"
#include "kernels/operators/conv1d/dense/finish.cuh"
#include "kernels/operators/conv1d/dense/splits.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

struct LinkedDenseChains {
  using Pre = LinkedChain<float, 3, ChainSite::pre>;
  using Post = LinkedChain<float, 3, ChainSite::post>;
};

// The multiplying warpgroups: products, the chain and the store of the block's tiles. Split products have a copy of it
// all: if both ways use the same sums, ptxas serialises the products (C7515).
template <bool IsSplit, class Post, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void multiply_tiles_of_block(const Arguments& a, std::uint32_t inputs, std::uint32_t weights,
                                                        DenseShared& shared) {
  // A shuffle tells the compiler that it is uniform in a warp.
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128 - (kDenseThreads / 128 - 2), 0);
  PipelineState input, weight;
  const auto skip_tile = [&] {
    input.advance(a.input_stages, a.input_steps());
    if (!a.resident) weight.advance(a.weight_stages, a.weight_stages_of_tile());
  };
  DenseSums<Blocks, Channels> sums;
  const int step = static_cast<int>(gridDim.x);
  int t = static_cast<int>(blockIdx.x);
  if (a.is_pingpong && warpgroup == 1) {
    skip_tile();
    t += step;
  }
  int bias_channel = -1;  // first channel of the bias in shared memory
  for (; t < a.tiles; t += a.is_pingpong ? 2 * step : step) {
    const DenseTile tile = dense_tile(a, t, Channels);
    if (tile.channel != bias_channel) load_bias<Channels>(a, tile, shared, warpgroup);
    bias_channel = tile.channel;
    if (a.is_pingpong && t >= step) await_order(warpgroup);
    multiply_tile<IsSplit, Element, Blocks, Channels>(a, tile.group_or_split, inputs, weights, shared, warpgroup,
                                                      t + step >= a.tiles, input, weight, sums);
    if (a.is_pingpong) skip_tile();
    bool is_joined = true;
    if constexpr (Arguments::kJoinsSplits) is_joined = join_splits<Blocks, Channels>(a, t, warpgroup, sums);
    if (is_joined) {
      finish_tile<Post, Element, Blocks, Channels, ByPositions>(a, tile, shared, warpgroup, sums);
    }
  }
}

// `Arguments`: DenseArguments, or a type with its own overloads of finish_tile and load_bias.
template <class Chains, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void dense(const Arguments& a) {
  extern __shared__ __align__(kTileAlignment) char memory[];
  const std::uint32_t inputs = shared_address(memory);
  const std::uint32_t weights = inputs + a.input_stages * a.input_stage_bytes();
  const std::uint32_t raw = weights + a.weight_stages * a.weight_stage_bytes(Channels);
  DenseShared& shared = *reinterpret_cast<DenseShared*>(memory + (raw - inputs) + a.raw_bytes());
  if (threadIdx.x == 0) {
    const int readers = a.is_pingpong ? 1 : 2;
    for (int s = 0; s < a.input_stages; ++s) {
      initialise(shared.input_full + s, filling_threads<typename Chains::Pre, Element>(a));
      initialise(shared.input_copied + s, 1);
      initialise(shared.input_empty + s, readers);
    }
    for (int s = 0; s < a.weight_stages; ++s) {
      initialise(shared.weight_full + s, 1);
      initialise(shared.weight_empty + s, readers);
    }
  }
  fence_before_bulk_copy();
  __syncthreads();

  if (threadIdx.x < kDenseThreads - 256) {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kDenseFetchRegisters));
#endif
    if (threadIdx.x < kDenseFetchThreads) {
      fetch_input<typename Chains::Pre, Element, Channels>(a, inputs, raw, shared, threadIdx.x);
    } else if (threadIdx.x == kDenseFetchThreads) {
      fetch_weights<Channels>(a, weights, shared);
    }
    return;
  }
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kDenseConsumerRegisters));
#endif
  const auto multiply = [&]<bool kIsSplit>(std::bool_constant<kIsSplit>) {
    multiply_tiles_of_block<kIsSplit, typename Chains::Post, Element, Blocks, Channels, ByPositions>(a, inputs, weights,
                                                                                                     shared);
  };
  if constexpr (std::is_same_v<Element, float> && Blocks * Channels / 2 <= kMostSplitSums) {
    if (a.parts == 2) return multiply(std::true_type{});
  }
  multiply(std::false_type{});
}

template <class Chains, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__global__ void __launch_bounds__(kDenseThreads, 1) dense_kernel(const __grid_constant__ Arguments a) {
  dense<Chains, Element, Blocks, Channels, ByPositions>(a);
}

// Its chains are linked in: interpreting them would take the registers that hold the sums.
template <class Arguments, class Element, int Blocks, int Channels, bool ByPositions>
struct InterpretedDense {
  static Kernel<Arguments> of(const Conv1dParams& params) {
    if (!params.pre.empty() || !params.post.empty()) return nullptr;
    return dense_kernel<NoChains, Element, Blocks, Channels, ByPositions, Arguments>;
  }
  // The input is fetched while the weight is packed, and weights while the input is converted.
  static Start start(const Conv1dParams& params) { return params.dense.follows_own ? Start::beside : Start::behind; }
};
template <class Element, int Blocks, int Channels>
struct Interpreted<DenseKernel::dense_channels, Element, Blocks, Channels>
    : InterpretedDense<DenseArguments, Element, Blocks, Channels, /*ByPositions=*/false> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<DenseKernel::dense_positions, Element, Blocks, Channels>
    : InterpretedDense<DenseArguments, Element, Blocks, Channels, /*ByPositions=*/true> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<DenseKernel::dense_general_channels, Element, Blocks, Channels>
    : InterpretedDense<GeneralDenseArguments, Element, Blocks, Channels, /*ByPositions=*/false> {};
template <class Element, int Blocks, int Channels>
struct Interpreted<DenseKernel::dense_general_positions, Element, Blocks, Channels>
    : InterpretedDense<GeneralDenseArguments, Element, Blocks, Channels, /*ByPositions=*/true> {};

}  // namespace sluice
