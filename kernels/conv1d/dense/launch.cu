#include "kernels/conv1d/dense/launch.h"

#include "kernels/common/element.cuh"

namespace sluice {

// launch_tile.cuh, launch_general.cuh
template <class Element, int Blocks, int Channels>
cudaError_t launch_tile(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream);
template <class Element, int Blocks, int Channels>
cudaError_t launch_general(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream);

namespace {

template <class Element>
cudaError_t launch_as(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const DenseShape& tile = plan.dense.tile();
#define SLUICE_DENSE_TILE(blocks_, channels_)                                                                \
  if (tile.blocks == (blocks_) && tile.channels == (channels_))                                              \
    return plan.dense.is_general ? launch_general<Element, blocks_, channels_>(params, plan, linked, stream) \
                                 : launch_tile<Element, blocks_, channels_>(params, plan, linked, stream);
#include "kernels/conv1d/dense/tiles.def"
#undef SLUICE_DENSE_TILE
  return cudaErrorInvalidConfiguration;
}

}  // namespace

cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                         cudaStream_t stream) {
  Conv1dParams packed = params;
  if (plan.workspace_bytes > 0) {
    const PackParams pack{.weight = params.dense.weight,
                          .channels = params.channels,
                          .input_channels = params.dense.input_channels,
                          .packed = workspace,
                          .order = plan.dense.order};
    if (const cudaError_t status = launch_pack(pack, stream); status != cudaSuccess) return status;
    packed.dense.packed = workspace;
    packed.dense.follows_pack = true;
  }
  const bool half = params.input.dtype == DType::float16;
  return half ? launch_as<__half>(packed, plan, linked, stream)
              : launch_as<__nv_bfloat16>(packed, plan, linked, stream);
}

}  // namespace sluice
