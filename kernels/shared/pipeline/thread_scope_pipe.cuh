// Schedule `thread_scope`: every thread has its own cuda::pipeline (cp.async groups, no shared state). A thread only
// sees its own copies, so if threads share a stage there is a block barrier after the wait and after the last read.
#pragma once

#include <cuda/pipeline>

#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class ThreadScopePipe : public WholeBlock {
 public:
  struct Storage {};

  __device__ ThreadScopePipe(Storage&, Ring, bool shares) : shares_(shares) {}

  __device__ void producer_acquire() { pipeline_.producer_acquire(); }
  __device__ void copy(const WordTile& tile) {
    share_words(tile, thread(), threads(), [this](Word* to, const char* from) {
      cuda::memcpy_async(to, reinterpret_cast<const Word*>(from), cuda::aligned_size_t<kWordBytes>(kWordBytes),
                         pipeline_);
    });
  }
  __device__ void producer_commit() {
    // Copy groups are counted once per converged warp: a diverged commit would make up to 32 of them, and every later
    // wait would wait for too many.
    __syncwarp();
    pipeline_.producer_commit();
  }
  __device__ void consumer_wait() {
    pipeline_.consumer_wait();
    if (shares_) __syncthreads();
  }
  __device__ void consumer_release() {
    pipeline_.consumer_release();
    if (shares_) __syncthreads();
  }

 private:
  cuda::pipeline<cuda::thread_scope_thread> pipeline_ = cuda::make_pipeline();
  bool shares_;
};

}  // namespace sluice
