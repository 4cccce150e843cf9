// Schedule `sync`: through registers into shared memory, then a barrier. No asynchronous copy.
#pragma once

#include "kernels/pipeline/pipe.cuh"

namespace sluice {

class SyncPipe {
 public:
  struct Storage {};

  __device__ SyncPipe(Storage&, int /*depth*/, bool /*shares*/) {}

  __device__ void producer_acquire() {}
  __device__ void copy(void* to, const void* from) { store_word(to, load_word(from)); }
  __device__ void producer_commit() {}
  __device__ void consumer_wait() { __syncthreads(); }
  __device__ void consumer_release() { __syncthreads(); }
};

}  // namespace sluice
