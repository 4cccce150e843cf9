#include "kernels/operators/conv1d/dense/launch.h"

#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/operators/conv1d/dense/splits.h"
#include "kernels/operators/conv1d/interleaved/launch.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/pipeline/enqueue.h"

namespace sluice {
namespace {

// The kernel's instance for the plan's tile.
template <auto which, class Element>
cudaError_t enqueue_tile(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  const DenseShape& tile = plan.dense.tile();
#define SLUICE_DENSE_TILE(blocks_, channels_)                   \
  if (tile.blocks == (blocks_) && tile.channels == (channels_)) \
    return enqueue<which, Element, blocks_, channels_>(params, plan, linked, stream);
  if constexpr (std::is_same_v<decltype(which), InterleavedKernel>) {
#include "kernels/operators/conv1d/interleaved/tiles.def"
  } else if constexpr (std::is_same_v<decltype(which), PortableKernel>) {
#include "kernels/operators/conv1d/dense/portable/tiles.def"
  } else {
#include "kernels/operators/conv1d/dense/tiles.def"
  }
#undef SLUICE_DENSE_TILE
  return cudaErrorInvalidConfiguration;
}

template <class Element>
cudaError_t launch_portable(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                            cudaStream_t stream) {
  switch (portable_kernel_of(plan.dense, params.interleave.exists())) {
    case PortableKernel::portable_interleaved:
      return enqueue_tile<PortableKernel::portable_interleaved, Element>(params, plan, linked, stream);
    case PortableKernel::portable_positions:
      return enqueue_tile<PortableKernel::portable_positions, Element>(params, plan, linked, stream);
    default: return enqueue_tile<PortableKernel::portable_channels, Element>(params, plan, linked, stream);
  }
}

template <class Element>
cudaError_t launch_as(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, cudaStream_t stream) {
  if (plan.dense.is_portable) return launch_portable<Element>(params, plan, linked, stream);
  if (params.interleave.exists()) {
    return enqueue_tile<InterleavedKernel::interleaved, Element>(params, plan, linked, stream);
  }
  switch (kernel_of(plan.dense)) {
    case DenseKernel::dense_channels:
      return enqueue_tile<DenseKernel::dense_channels, Element>(params, plan, linked, stream);
    case DenseKernel::dense_positions:
      return enqueue_tile<DenseKernel::dense_positions, Element>(params, plan, linked, stream);
    case DenseKernel::dense_general_channels:
      return enqueue_tile<DenseKernel::dense_general_channels, Element>(params, plan, linked, stream);
    default: return enqueue_tile<DenseKernel::dense_general_positions, Element>(params, plan, linked, stream);
  }
}

cudaError_t pack_at_call(const Conv1dParams& params, const PackedOrder& order, void* memory, cudaStream_t stream) {
  const DenseTensors& own = params.dense;
  if (params.interleave.exists()) {
    return launch_pack_polyphase({.weight = own.weight,
                                  .input_channels = own.input_channels,
                                  .weight_taps = own.weight_taps,
                                  .packed = memory,
                                  .order = order,
                                  .interleave = params.interleave},
                                 stream);
  }
  return launch_pack({.weight = own.weight,
                      .channels = params.channels,
                      .input_channels = own.input_channels,
                      .packed = memory,
                      .order = order},
                     stream);
}

}  // namespace

cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                         cudaStream_t stream) {
  Conv1dParams ahead = params;
  auto* memory = static_cast<char*>(workspace);
  if (plan.dense.splits > 1) {
    ahead.dense.sums = memory + plan.workspace_bytes - plan.dense.sums_bytes;
    const auto bytes = static_cast<std::size_t>(split_count_bytes(plan.dense.split_tiles()));
    const cudaError_t status = cudaMemsetAsync(ahead.dense.sums, 0, bytes, stream);
    if (status != cudaSuccess) return status;
  }
  if (params.dense.packed == nullptr) {
    const cudaError_t status = pack_at_call(params, plan.dense.order, memory, stream);
    if (status != cudaSuccess) return status;
    ahead.dense.packed = memory;
    ahead.dense.follows_own = true;
    memory += plan.dense.order.bytes();
  }
  if (plan.dense.converts_input) {
    ToChannelsLastParams conversion = to_channels_last_params(params);
    conversion.converted = memory;
    const cudaError_t status = launch_to_channels_last(conversion, params.pre, params.pre_operands,
                                                       params.dense.linked_to_channels_last, stream);
    if (status != cudaSuccess) return status;
    ahead.input = conversion.result();
    ahead.pre = {};
    ahead.dense.follows_own = true;
  }
  switch (params.input.dtype) {
    case DType::float16: return launch_as<__half>(ahead, plan, linked, stream);
    case DType::bfloat16: return launch_as<__nv_bfloat16>(ahead, plan, linked, stream);
    default: return launch_as<float>(ahead, plan, linked, stream);
  }
}

}  // namespace sluice
