// Schedule `producer_consumer`: a block-scope cuda::pipeline with roles. The last warp of the block only copies, the
// others only compute; the producer waits for nobody until the ring is full.
#pragma once

#include "kernels/shared/pipeline/block_pipeline.cuh"

namespace sluice {

class ProducerConsumerPipe : public BlockPipeline {
 public:
  static constexpr int kProducers = producer_threads(Schedule::producer_consumer);
  static constexpr RingLoop kLoop = RingLoop::roles;
  using Storage = StorageOf<kMaxDepth>;

  __device__ ProducerConsumerPipe(Storage& storage, Ring ring, bool /*shares*/)
      : BlockPipeline(make_any(storage.bytes, ring.depth,
                               produces() ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer)) {}

  __device__ static int consumers() { return static_cast<int>(blockDim.x) - kProducers; }
  __device__ static bool produces() { return static_cast<int>(threadIdx.x) >= consumers(); }
  __device__ static bool consumes() { return !produces(); }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) - consumers(); }
  __device__ static int threads() { return kProducers; }
  __device__ static void consumer_sync() { asm volatile("barrier.cta.sync 1, %0;" : : "r"(consumers()) : "memory"); }
  __device__ void copy(const WordTile& tile) { copy_share(tile, thread(), threads()); }
};

}  // namespace sluice
