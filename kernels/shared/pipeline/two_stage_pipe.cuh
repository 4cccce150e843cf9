// Schedule `two_stage`: a block-scope cuda::pipeline of two stages. The next tile is fetched before the wait for the
// current one, with the first fetch before the loop and the last compute after it (run_two_stage).
#pragma once

#include "kernels/shared/pipeline/block_pipeline.cuh"

namespace sluice {

class TwoStagePipe : public BlockPipeline, public WholeBlock {
 public:
  static constexpr RingLoop kLoop = RingLoop::two_stage;
  using Storage = StorageOf<2>;
  __device__ TwoStagePipe(Storage& storage, Ring, bool /*shares*/) : BlockPipeline(make<2>(storage.bytes)) {}
  __device__ void copy(const WordTile& tile) { copy_share(tile, thread(), threads()); }
};

}  // namespace sluice
