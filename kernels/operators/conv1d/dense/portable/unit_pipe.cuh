// The portable kernel's pipe (kernels/shared/pipeline/pipe.cuh), with roles: the last warps of the block only copy, the
// others only multiply. A stage has two barriers in shared memory: producers' copies arrive on `filled`, a lane of each
// consuming warp on `read`.
#pragma once

#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/operators/conv1d/dense/portable/policy.h"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class UnitPipe {
 public:
  struct Storage {
    std::uint64_t filled[kMaxDepth], read[kMaxDepth];
  };

  __device__ __forceinline__ UnitPipe(Storage& storage, int depth) : barriers_(storage), depth_(depth) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < depth; ++s) {
        initialise(storage.filled + s, kPortableProducers);
        initialise(storage.read + s, kPortableConsumers / 32);
      }
    }
    __syncthreads();
  }

  __device__ static bool produces() { return threadIdx.x >= kPortableConsumers; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) - kPortableConsumers; }  // a producer's rank
  __device__ static void consumer_sync() { asm volatile("bar.sync 3, %0;" : : "n"(kPortableConsumers) : "memory"); }

  // The stage that this thread fills, or reads, next.
  __device__ __forceinline__ int stage() const { return own_.stage; }

  __device__ __forceinline__ void producer_acquire() {
    if (is_used_) wait_for_phase(barriers_.read + own_.stage, own_.parity ^ 1);
  }
  __device__ __forceinline__ void producer_commit() {
    auto* const filled = reinterpret_cast<__mbarrier_t*>(barriers_.filled + own_.stage);
    __pipeline_arrive_on(filled);
    __mbarrier_arrive(filled);
    own_.advance(depth_);
    is_used_ = is_used_ || own_.stage == 0;
  }
  __device__ __forceinline__ void consumer_wait() { wait_for_phase(barriers_.filled + own_.stage, own_.parity); }
  __device__ __forceinline__ void consumer_release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers_.read + own_.stage);
    own_.advance(depth_);
  }

 private:
  Storage& barriers_;
  int depth_;
  PipelineState own_;
  bool is_used_ = false;  // whether stages hold units, which consumers read
};

}  // namespace sluice
