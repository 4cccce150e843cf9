// Schedule `barrier`: a block-scope cuda::barrier for each stage, set up by one thread, on which the copies arrive.
// From compute capability 9.0 on cuda::memcpy_async is then a bulk copy by one thread; before, cp.async by all.
#pragma once

#include <cooperative_groups.h>
#include <cuda/barrier>

#include "kernels/shared/pipeline/mbarrier.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class BarrierPipe : public WholeBlock {
 public:
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  struct Storage {
    // Raw bytes: a __shared__ object may not have a constructor.
    alignas(Barrier) unsigned char bytes[kMaxDepth * sizeof(Barrier)];
  };

  __device__ BarrierPipe(Storage& storage, Ring ring, bool /*shares*/)
      : barriers_(reinterpret_cast<Barrier*>(storage.bytes)), depth_(ring.depth) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < ring.depth; ++s) init(barriers_ + s, static_cast<int>(blockDim.x));
    }
    __syncthreads();
  }

  __device__ void producer_acquire() {}
  __device__ void copy(const WordTile& tile) {
    const auto block = cooperative_groups::this_thread_block();
    for (int r = 0; r < tile.rows; ++r) {
      cuda::memcpy_async(
          block, tile.to + r * tile.to_pitch, reinterpret_cast<const Word*>(tile.from + r * tile.from_pitch),
          cuda::aligned_size_t<kWordBytes>(static_cast<std::size_t>(tile.words) * kWordBytes), barriers_[fetch_]);
    }
  }
  __device__ void producer_commit() {
    [[maybe_unused]] const auto token = barriers_[fetch_].arrive();  // the wait checks the phase instead
    fetch_ = next_stage(fetch_, depth_);
  }
  __device__ void consumer_wait() {
    wait_for_phase(reinterpret_cast<std::uint64_t*>(cuda::device::barrier_native_handle(barriers_[compute_])), parity_);
  }
  __device__ void consumer_release() {
    fence_before_bulk_copy();
    __syncthreads();
    compute_ = next_stage(compute_, depth_);
    if (compute_ == 0) parity_ ^= 1;
  }

 private:
  Barrier* barriers_;
  int depth_;
  int fetch_ = 0, compute_ = 0, parity_ = 0;
};

}  // namespace sluice
