// Schedule `multi_stage`: a block-scope cuda::pipeline of `depth` stages. Copies are cp.async of 16 bytes,
// whose completion each thread reports to the stage's barrier; a wait is a wait on that barrier.
#pragma once

#include <cooperative_groups.h>
#include <cuda/pipeline>

#include "kernels/pipeline/pipe.cuh"

namespace sluice {

class MultiStagePipe {
 public:
  using BlockPipeline = cuda::pipeline<cuda::thread_scope_block>;

  // Room for the largest ring; a shallower one uses a prefix. Raw bytes, because a __shared__ object
  // may not have a constructor.
  struct Storage {
    alignas(cuda::pipeline_shared_state<cuda::thread_scope_block, kMaxDepth>) unsigned char bytes[sizeof(
        cuda::pipeline_shared_state<cuda::thread_scope_block, kMaxDepth>)];
  };

  __device__ MultiStagePipe(Storage& storage, int depth, bool /*shares*/) : pipeline_(make(storage, depth)) {}

  __device__ void producer_acquire() { pipeline_.producer_acquire(); }
  __device__ void copy(void* to, const void* from) {
    cuda::memcpy_async(to, from, cuda::aligned_size_t<kWordBytes>(kWordBytes), pipeline_);
  }
  __device__ void producer_commit() { pipeline_.producer_commit(); }
  __device__ void consumer_wait() { pipeline_.consumer_wait(); }
  __device__ void consumer_release() { pipeline_.consumer_release(); }

 private:
  // The number of stages is part of the shared state's type but not of the pipeline's, so one kernel
  // serves every depth: only the set-up is compiled eight times.
  __device__ static BlockPipeline make(Storage& storage, int depth) {
    switch (depth) {
      case 1: return make_with<1>(storage);
      case 2: return make_with<2>(storage);
      case 3: return make_with<3>(storage);
      case 4: return make_with<4>(storage);
      case 5: return make_with<5>(storage);
      case 6: return make_with<6>(storage);
      case 7: return make_with<7>(storage);
      default: return make_with<kMaxDepth>(storage);
    }
  }

  template <int Depth>
  __device__ static BlockPipeline make_with(Storage& storage) {
    using State = cuda::pipeline_shared_state<cuda::thread_scope_block, Depth>;
    return cuda::make_pipeline(cooperative_groups::this_thread_block(), reinterpret_cast<State*>(storage.bytes));
  }

  BlockPipeline pipeline_;
};

}  // namespace sluice
