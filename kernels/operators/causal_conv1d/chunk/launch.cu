#include <cooperative_groups.h>

#include "kernels/operators/causal_conv1d/chunk/finish.cuh"
#include "kernels/operators/causal_conv1d/chunk/launch.h"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

template <class Chain, bool IsSplit, class Element, int Columns>
__global__ void __launch_bounds__(kChunkThreads) chunk_kernel(const __grid_constant__ ChunkArguments a) {
  extern __shared__ __align__(128) char all[];
  auto* const rows = reinterpret_cast<ChunkRow*>(all);
  char* const memory = all + kChunkRowsBytes;
  const LaneColumns<Columns> columns(a);
  for (int index = static_cast<int>(blockIdx.x); index < a.items; index += static_cast<int>(gridDim.x)) {
    const ChunkItem item(a, index);
    ChunkSums<Columns> sums = {};
    find_rows(a, item, rows);
    for (int k_block = item.first_k_block; k_block < item.last_k_block; k_block += a.plan.staged) {
      const int count = min_of(a.plan.staged, item.last_k_block - k_block);
      __syncthreads();
      stage_chunk<Chain, IsSplit, Element>(a, item, rows, k_block, count, memory);
      __syncthreads();
      multiply_chunk<IsSplit, Element, Columns>(a, item, k_block, count, columns, memory, sums);
    }
    const long long tiles = a.plan.column_tiles * a.plan.channel_tiles;
    float* const kept = a.sums + (item.split * tiles + item.tile) * Columns * kChunkChannels;
    join_warps<Columns>(sums, memory, [&](int column, int channel, float sum) {
      if (a.keeps_sums()) {
        __stcg(kept + column * kChunkChannels + channel, sum);
        return;
      }
      const ChunkColumn own(a, column);
      const int result_channel = item.first_channel + channel;
      if (!own.exists(a, item) || result_channel >= a.channels) return;
      const long long row = item.first_row + own.row;
      store_result<Chain, Element>(a, row, a.states.slot_of(row) >= 0, result_channel, item.first_frame + own.frame,
                                   sum);
    });
  }
  cooperative_groups::this_grid().sync();
  if (a.spread > 0) return finish_overlaps<Chain, Element>(a);
  if (a.keeps_sums()) finish_results<Chain, Element>(a);
  if (a.states.before.exists()) replace_states(a);
}

ChunkArguments arguments_of(const ChunkParams& params, const ChunkPlan& plan, void* workspace) {
  ChunkArguments a{params};
  a.plan = plan;
  a.sums = plan.workspace_bytes > 0 ? static_cast<float*>(workspace) : nullptr;
  a.items = static_cast<int>(plan.column_tiles * plan.channel_tiles * plan.splits);
  a.by_splits = FastDivisor(plan.splits);
  a.by_channel_tiles = FastDivisor(plan.channel_tiles);
  a.by_frame_tiles = FastDivisor(ceil_div<long long>(params.frames, plan.frames));
  a.by_frames = FastDivisor(plan.frames);
  const int elements = params.order.word_elements();
  const long long* const strides = params.input.strides;
  a.across = strides[1] == 1;
  a.words = a.across && strides[0] % elements == 0 && strides[2] % elements == 0 &&
            reinterpret_cast<std::uintptr_t>(params.input.data) % kWordBytes == 0;
  const long long inputs[] = {params.rows, params.input_channels, params.length};
  const long long outputs[] = {params.rows, params.channels,
                               params.spread > 0 ? params.length * params.spread : params.frames};
  a.pre = make_chain_arguments<float, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, outputs);
  return a;
}

template <class Chain, bool IsSplit, class Element>
cudaError_t launch_columns(const ChunkArguments& a, cudaStream_t stream) {
  const auto launch_as = [&](auto kernel) {
    return launch_kernel(kernel, a.plan.grid, kChunkThreads, a.plan.shared_memory, stream, a, Start::together);
  };
  switch (a.plan.columns) {
    case 16: return launch_as(chunk_kernel<Chain, IsSplit, Element, 16>);
    case 32: return launch_as(chunk_kernel<Chain, IsSplit, Element, 32>);
    default:
      if constexpr (IsSplit) return cudaErrorInvalidConfiguration;
      return launch_as(chunk_kernel<Chain, false, Element, 64>);
  }
}

template <bool IsSplit, class Element>
cudaError_t launch_chains(const ChunkParams& params, const ChunkArguments& a, cudaStream_t stream) {
  if (params.pre.empty() && params.post.empty()) return launch_columns<NoChain, IsSplit, Element>(a, stream);
  return launch_columns<InterpretedChain<float, 3>, IsSplit, Element>(a, stream);
}

}  // namespace

cudaError_t launch_chunk(const ChunkParams& params, const ChunkPlan& plan, void* workspace, cudaStream_t stream) {
  const ChunkArguments a = arguments_of(params, plan, workspace);
  switch (params.input.dtype) {
    case DType::float16: return launch_chains<false, __half>(params, a, stream);
    case DType::bfloat16: return launch_chains<false, __nv_bfloat16>(params, a, stream);
    default:
      return params.order.parts == 2 ? launch_chains<true, float>(params, a, stream)
                                     : launch_chains<false, float>(params, a, stream);
  }
}

}  // namespace sluice
