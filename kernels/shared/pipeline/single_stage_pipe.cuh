// Schedule `single_stage`: a block-scope cuda::pipeline of one stage. Copy, wait, compute: nothing overlaps within a
// block.
#pragma once

#include "kernels/shared/pipeline/block_pipeline.cuh"

namespace sluice {

class SingleStagePipe : public BlockPipeline, public WholeBlock {
 public:
  using Storage = StorageOf<1>;
  __device__ SingleStagePipe(Storage& storage, Ring, bool /*shares*/) : BlockPipeline(make<1>(storage.bytes)) {}
  __device__ void copy(const WordTile& tile) { copy_share(tile, thread(), threads()); }
};

}  // namespace sluice
