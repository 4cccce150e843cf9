// Schedule `bulk`: cp.async.bulk, a row of words per instruction, by the SM's copy engine. Compute capability 9.0 and
// later; a word's own alignment, 16 bytes, is enough.
//
//   warp 0      acquire: wait until `empty` has all warps    copy: a lane a row    commit: expect the bytes on `full`
//   all warps   wait on `full`                               compute               release: one lane arrives on `empty`
//
// Warp 0 also stores partial words; its lanes' stores precede lane 0's arrival, and so are visible with it.
#pragma once

#include <cstdint>

#include "kernels/shared/pipeline/mbarrier.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class BulkPipe : public WholeBlock {
 public:
  struct Storage {
    std::uint64_t full[kMaxDepth], empty[kMaxDepth];
  };

  __device__ BulkPipe(Storage& storage, Ring ring, bool /*shares*/) : storage_(storage), depth_(ring.depth) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < ring.depth; ++s) {
        initialise(storage.full + s, 1);
        initialise(storage.empty + s, static_cast<int>(blockDim.x) / 32);
      }
    }
    fence_before_bulk_copy();
    __syncthreads();
  }

  __device__ static bool produces() { return threadIdx.x < 32; }
  __device__ static int threads() { return 32; }

  __device__ void producer_acquire() {
    if (used_) wait_for_phase(storage_.empty + fetch_, empty_parity_);
    bytes_ = 0;
  }
  __device__ void copy(const WordTile& tile) {
    const std::uint32_t bytes = static_cast<std::uint32_t>(tile.words) * kWordBytes;
    bytes_ += bytes * static_cast<std::uint32_t>(tile.rows);
    for (int r = thread(); r < tile.rows; r += threads()) {
      copy_bulk(shared_address(tile.to + r * tile.to_pitch), tile.from + r * tile.from_pitch, bytes,
                storage_.full + fetch_);
    }
  }
  __device__ void producer_commit() {
    __syncwarp();
    if (thread() == 0) arrive_expecting(storage_.full + fetch_, bytes_);
    fetch_ = next_stage(fetch_, depth_);
    if (fetch_ == 0) {
      if (used_) empty_parity_ ^= 1;
      used_ = true;
    }
  }
  __device__ void consumer_wait() { wait_for_phase(storage_.full + compute_, full_parity_); }
  __device__ void consumer_release() {
    fence_before_bulk_copy();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(storage_.empty + compute_);
    compute_ = next_stage(compute_, depth_);
    if (compute_ == 0) full_parity_ ^= 1;
  }

 private:
  Storage& storage_;
  int depth_;
  int fetch_ = 0, compute_ = 0, full_parity_ = 0, empty_parity_ = 0;
  bool used_ = false;  // every stage once: from then on a fetch waits for a release
  std::uint32_t bytes_ = 0;
};

}  // namespace sluice
