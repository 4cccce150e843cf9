// Schedule `multi_stage`: a block-scope cuda::pipeline of `depth` stages. Copies are cp.async of 16 bytes; each thread
// arrives on the stage's barrier when its copies complete, and a wait is a wait on that barrier.
#pragma once

#include "kernels/shared/pipeline/block_pipeline.cuh"

namespace sluice {

class MultiStagePipe : public BlockPipeline, public WholeBlock {
 public:
  using Storage = StorageOf<kMaxDepth>;
  __device__ MultiStagePipe(Storage& storage, Ring ring, bool /*shares*/)
      : BlockPipeline(make_any(storage.bytes, ring.depth)) {}
  __device__ void copy(const WordTile& tile) { copy_share(tile, thread(), threads()); }
};

}  // namespace sluice
