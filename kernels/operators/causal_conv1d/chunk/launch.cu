#include "kernels/operators/causal_conv1d/chunk/finish.cuh"
#include "kernels/operators/causal_conv1d/chunk/gather.cuh"
#include "kernels/operators/causal_conv1d/chunk/launch.h"
#include "kernels/shared/common/architectures.h"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

// Only blocks of the product that read a new window wait for this kernel, which therefore waits for all before it.
template <class Chain, bool IsSplit, class Element>
__global__ void __launch_bounds__(kChunkThreads) gather_kernel(const __grid_constant__ GatherArguments a) {
  const int block = static_cast<int>(blockIdx.x), overlap = block - a.state_blocks;
  if (overlap >= 0 && overlap < a.overlap_blocks) {
    gather_overlaps(a, overlap * kChunkThreads + threadIdx.x);
  } else {
    gather_words<Chain, IsSplit, Element>(a, block);
  }
  if (block == 0 && a.n.counters != nullptr) {
    for (int i = threadIdx.x; i < a.n.tiles; i += kChunkThreads) a.n.counters[i] = 0;
  }
}

template <class Chain, bool IsSplit, class Element, int LaneColumns>
__global__ void __launch_bounds__(kChunkThreads, IsSplit ? 1 : 2)
    product_kernel(const __grid_constant__ ChunkArguments a) {
  extern __shared__ __align__(128) char all[];
  begin_next();
  const ChunkItem item(a);
  auto& own = *reinterpret_cast<ChunkShared*>(all);
  char* const memory = all + kChunkSharedBytes;
  if (threadIdx.x < kWordBytes) own.zero[threadIdx.x] = 0;
  if (threadIdx.x < kChunkStages) initialise(own.full + threadIdx.x, kCopiesBulk ? 1 : kChunkThreads);
  fence_before_bulk_copy();
  __syncthreads();
  const ChunkCopies copies(a, item, memory, own.full);
  const FirstCopies first(a, item);
  first.copy_weights(a, copies);
  load_bias<Element>(a, item, own.bias);
  await_previous();
  first.copy_windows(a, copies);
  ChunkSums<LaneColumns> sums = {};
  multiply_item<IsSplit, Element, LaneColumns>(a, item, copies, LaneReads<LaneColumns>(a), memory, own.zero, sums);
  auto* const shared = reinterpret_cast<float*>(memory);
  join_warps<LaneColumns>(a, sums, shared);
  if (a.n.counters != nullptr && !join_splits(a, item, shared, &own.is_last)) return;
  finish_tile<Chain, Element>(a, item, shared, own.bias);
}

ChunkNumbers numbers_of(const ChunkParams& p, const ChunkPlan& plan, char* memory) {
  ChunkNumbers n{};
  n.packed = static_cast<const char*>(p.packed);
  n.window = memory;
  n.counters = plan.splits > 1 ? reinterpret_cast<unsigned*>(memory + plan.counters_at) : nullptr;
  n.sums = reinterpret_cast<float*>(memory + plan.sums_at);
  n.row_bytes = p.order.row_bytes(), n.parts = p.order.parts;
  n.words_log = p.order.words() == 8 ? 3 : p.order.words() == 4 ? 2 : 1;
  n.rows = static_cast<int>(p.rows), n.frames = static_cast<int>(p.frames);
  n.weight_rows = static_cast<int>(p.order.rows), n.k_blocks = p.order.k_blocks;
  n.taps = p.taps, n.stride = p.stride, n.dilation = p.dilation;
  n.slab = p.rows * p.stride * plan.places * n.row_bytes;
  n.part = n.slab * n.k_blocks;
  n.tap = p.order.rows * n.row_bytes;
  n.block = n.tap * n.parts * n.taps;
  n.splits = plan.splits, n.tiles = static_cast<int>(plan.tiles());
  n.channel_tiles = static_cast<int>(plan.channel_tiles), n.split_k_blocks = plan.k_blocks;
  n.tap_groups = plan.tap_groups, n.stage_taps = plan.stage_taps;
  n.stages = plan.stages, n.stage_bytes = plan.stage_bytes;
  while (plan.stages << (n.stage_warps_log + 1) <= kChunkWarps) ++n.stage_warps_log;
  n.tile_rows = plan.rows, n.tile_frames = plan.frames, n.places = plan.places, n.tile_places = plan.tile_places;
  n.columns = plan.columns(), n.warp_columns_log = plan.warp_columns_log;
  n.by_stride = FastDivisor(p.stride);
  n.by_splits = FastDivisor(plan.splits);
  n.by_channel_tiles = FastDivisor(plan.channel_tiles);
  n.by_frame_tiles = FastDivisor(ceil_div<long long>(p.frames, plan.frames));
  n.by_frames = FastDivisor(plan.frames);
  return n;
}

template <class Chain, bool IsSplit, class Element>
cudaError_t launch_gather(const ChunkParams& p, const ChunkPlan& plan, const ChunkNumbers& numbers, float* overlaps,
                          Start start, cudaStream_t stream) {
  const bool has_states = p.spread == 0 && p.chunk.states.before.exists();
  const long long* const strides = p.chunk.input.strides;
  const int elements = p.order.word_elements(), first = has_states ? static_cast<int>(p.chunk.history) : 0;
  const long long positions = static_cast<long long>(p.stride) * plan.places - first;
  const long long sizes[] = {p.rows, p.chunk.channels, p.chunk.length};
  GatherArguments a{};
  a.n = numbers, a.t = p, a.overlaps = overlaps;
  a.by_words = FastDivisor(p.word_rows());
  a.by_positions = FastDivisor(positions);
  a.by_channels = FastDivisor(p.channels);
  a.state_blocks = has_states ? static_cast<int>(p.rows) * p.order.k_blocks : 0;
  const long long kept = p.spread > 0 ? p.rows * p.overlap * p.channels : 0;
  a.overlap_blocks = static_cast<int>(ceil_div<long long>(kept, kChunkThreads));
  a.first_position = first;
  a.across = strides[1] == 1;
  a.aligned = a.across && strides[0] % elements == 0 && strides[2] % elements == 0 &&
              reinterpret_cast<std::uintptr_t>(p.chunk.input.data) % kWordBytes == 0;
  a.pre = make_chain_arguments<float, 3>(p.pre, p.pre_operands, 3, sizes);
  const long long blocks = ceil_div<long long>(p.rows * positions * p.word_rows(), kChunkThreads);
  return launch_kernel(gather_kernel<Chain, IsSplit, Element>, a.state_blocks + a.overlap_blocks + blocks,
                       kChunkThreads, 0, stream, a, start);
}

template <class Chain, bool IsSplit, class Element>
cudaError_t launch_product(const ChunkParams& p, const ChunkPlan& plan, const ChunkNumbers& numbers, float* overlaps,
                           Start start, cudaStream_t stream) {
  const long long positions = p.spread > 0 ? p.chunk.length * p.spread : p.frames;
  const long long sizes[] = {p.rows, p.channels, positions};
  ChunkArguments a{};
  a.n = numbers, a.t = p, a.overlaps = overlaps;
  a.by_weight_rows = FastDivisor(max_of(1LL, plan.by_components ? p.channel_rows : p.component_rows));
  a.along = plan.along, a.by_components = plan.by_components, a.single = plan.single;
  a.post = make_chain_arguments<float, 3>(p.post, p.post_operands, 3, sizes);
  const auto launch_as = [&](auto kernel) {
    return launch_kernel(kernel, plan.grid, kChunkThreads, plan.shared_memory, stream, a, start);
  };
  if (plan.lane_columns == 16) return launch_as(product_kernel<Chain, IsSplit, Element, 16>);
  return launch_as(product_kernel<Chain, IsSplit, Element, 32>);
}

// Calls `launch_with` with a null pointer to the smallest interpreter that runs the chain: kernels this short wait for
// their instructions.
template <class LaunchWith>
void with_chain(const Program& program, const LaunchWith& launch_with) {
  if (program.empty()) {
    launch_with(static_cast<NoChain*>(nullptr));
  } else if (program.operands > 0) {
    launch_with(static_cast<InterpretedChain<float, 3>*>(nullptr));
  } else {
    launch_with(static_cast<InterpretedChain<float, 3, false>*>(nullptr));
  }
}

template <bool IsSplit, class Element>
cudaError_t launch_both(const ChunkParams& p, const ChunkPlan& plan, void* workspace, Start start,
                        cudaStream_t stream) {
  auto* const memory = static_cast<char*>(workspace);
  const ChunkNumbers n = numbers_of(p, plan, memory);
  float* const overlaps = p.spread > 0 ? reinterpret_cast<float*>(memory + plan.overlaps_at) : nullptr;
  cudaError_t status = cudaSuccess;
  with_chain(p.pre, [&](auto* chain) {
    status =
        launch_gather<std::remove_pointer_t<decltype(chain)>, IsSplit, Element>(p, plan, n, overlaps, start, stream);
  });
  if (status != cudaSuccess) return status;
  with_chain(p.post, [&](auto* chain) {
    status =
        launch_product<std::remove_pointer_t<decltype(chain)>, IsSplit, Element>(p, plan, n, overlaps, start, stream);
  });
  return status;
}

}  // namespace

cudaError_t launch_chunk(const ChunkParams& params, const ChunkPlan& plan, const DeviceProperties& device,
                         void* workspace, cudaStream_t stream) {
  const Start start = can_start_beside(device.compute_capability) ? Start::beside : Start::behind;
  switch (params.chunk.input.dtype) {
    case DType::float16: return launch_both<false, __half>(params, plan, workspace, start, stream);
    case DType::bfloat16: return launch_both<false, __nv_bfloat16>(params, plan, workspace, start, stream);
    default:
      return params.order.parts == 2 ? launch_both<true, float>(params, plan, workspace, start, stream)
                                     : launch_both<false, float>(params, plan, workspace, start, stream);
  }
}

}  // namespace sluice
