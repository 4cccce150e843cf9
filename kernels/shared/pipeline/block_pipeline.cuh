// Shared by the schedules with a block-scope cuda::pipeline: the verbs, and a copy of 16 bytes per thread.
//
// The number of stages is part of the shared state's type but not of the pipeline's, so one kernel serves every depth:
// only the set-up is compiled once per depth.
#pragma once

#include <cooperative_groups.h>
#include <cuda/pipeline>

#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class BlockPipeline {
 public:
  using Pipeline = cuda::pipeline<cuda::thread_scope_block>;
  template <int Depth>
  using State = cuda::pipeline_shared_state<cuda::thread_scope_block, Depth>;

  // Storage for `Most` stages; a shallower ring uses a prefix. Raw bytes: a __shared__ object may not have a
  // constructor.
  template <int Most>
  struct StorageOf {
    alignas(State<Most>) unsigned char bytes[sizeof(State<Most>)];
  };

  __device__ void producer_acquire() { pipeline_.producer_acquire(); }
  __device__ void producer_commit() { pipeline_.producer_commit(); }
  __device__ void consumer_wait() { pipeline_.consumer_wait(); }
  __device__ void consumer_release() { pipeline_.consumer_release(); }

 protected:
  __device__ explicit BlockPipeline(Pipeline&& pipeline) : pipeline_(static_cast<Pipeline&&>(pipeline)) {}

  __device__ void copy_share(const WordTile& tile, int thread, int threads) {
    share_words(tile, thread, threads, [this](Word* to, const char* from) {
      cuda::memcpy_async(to, reinterpret_cast<const Word*>(from), cuda::aligned_size_t<kWordBytes>(kWordBytes),
                         pipeline_);
    });
  }

  // All threads of the block in one role, or each in its own `role`.
  template <int Depth, class... Role>
  __device__ static Pipeline make(void* storage, Role... role) {
    return cuda::make_pipeline(cooperative_groups::this_thread_block(), static_cast<State<Depth>*>(storage), role...);
  }
  template <class... Role>
  __device__ static Pipeline make_any(void* storage, int depth, Role... role) {
    switch (depth) {
      case 1: return make<1>(storage, role...);
      case 2: return make<2>(storage, role...);
      case 3: return make<3>(storage, role...);
      case 4: return make<4>(storage, role...);
      case 5: return make<5>(storage, role...);
      case 6: return make<6>(storage, role...);
      case 7: return make<7>(storage, role...);
      default: return make<kMaxDepth>(storage, role...);
    }
  }

 private:
  Pipeline pipeline_;
};

}  // namespace sluice
