// Schedule `sync`: through registers into shared memory, then a barrier. No asynchronous copy.
#pragma once

#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class SyncPipe : public WholeBlock {
 public:
  struct Storage {};

  __device__ SyncPipe(Storage&, Ring, bool /*shares*/) {}

  __device__ void producer_acquire() {}
  __device__ void copy(const WordTile& tile) {
    share_words(tile, thread(), threads(), [](Word* to, const char* from) { store_word(to, load_word(from)); });
  }
  __device__ void producer_commit() {}
  __device__ void consumer_wait() { __syncthreads(); }
  __device__ void consumer_release() { __syncthreads(); }
};

}  // namespace sluice
