// Joins the sums of a tile's splits (splits.h), by each multiplying warpgroup for its own positions.
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/operators/conv1d/dense/multiply.cuh"

namespace sluice {

// Two warpgroups' sums of a tile as float4: a thread's k-th is 256 further than its (k - 1)th.
inline constexpr int kSumThreads = kDenseConsumerWarps * 32;

// Whether this warpgroup finishes the tile. The last split waits for the others: their blocks have smaller indices, so
// they run already. The order of additions is always the same.
template <int Blocks, int Channels>
__device__ __forceinline__ bool join_splits(const GeneralDenseArguments& a, int index, int warpgroup,
                                            DenseSums<Blocks, Channels>& sums) {
  constexpr int kVectors = Blocks * Channels / 8;
  const DenseSplits& own = a.splits;
  if (!own.exist() || own.is_whole(index)) return true;
  const int tile = own.split_tile(index), split = own.split_of(index) - 1, others = own.count - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  unsigned* const stored = own.stored + tile * 2 + warpgroup;
  auto* memory = reinterpret_cast<float4*>(own.sums) +
                 static_cast<std::size_t>(tile) * others * kVectors * kSumThreads + warpgroup * 128 + thread;
  const auto sum_of = [&](int i) -> float& { return sums[i / (Channels / 2)][i % (Channels / 2)]; };
  if (split < others) {
    memory += static_cast<std::size_t>(split) * kVectors * kSumThreads;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      __stcg(memory + v * kSumThreads,
             make_float4(sum_of(4 * v), sum_of(4 * v + 1), sum_of(4 * v + 2), sum_of(4 * v + 3)));
    }
    __threadfence();
    await_warpgroup(warpgroup);
    if (thread == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(stored) : "memory");
    return false;
  }
  if (thread == 0) {
    unsigned count = 0;
    while (count < static_cast<unsigned>(others)) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(stored) : "memory");
    }
  }
  await_warpgroup(warpgroup);
#pragma unroll 1
  for (int other = 0; other < others; ++other, memory += kVectors * kSumThreads) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 added = __ldcg(memory + v * kSumThreads);
      sum_of(4 * v) += added.x, sum_of(4 * v + 1) += added.y, sum_of(4 * v + 2) += added.z,
          sum_of(4 * v + 3) += added.w;
    }
  }
  return true;
}

}  // namespace sluice
