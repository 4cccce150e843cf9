// The traps that texts about cuda::pipeline fall into. Each is a kernel in two forms, fault and cure, and the fault
// must give a wrong result. Built and run by tests/gpu/test_traps.py.
//
//   traps grid_size|output_offset|last_batch|no_wait|occupancy fault|cure
//
// Exit status: 0 for a right result, 1 for a wrong result, 2 for wrong usage or a CUDA error.
//
// One trap has no case: cp.async takes a shared-space address, and PTX does not promise that a generic pointer
// truncated to 32 bits is one. On sm_90 __cvta_generic_to_shared compiles to this truncation, so the fault gives a
// right result.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda/pipeline>
#include <vector>

namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 4 * kThreads;  // words: one copy of 16 bytes for each thread
constexpr int kGuard = 2 * kBatch;    // words behind the output, which no kernel may write
constexpr std::uint32_t kUnwritten = 0xCDCDCDCD;
constexpr unsigned char kUnwrittenByte = 0xCD;

enum class Verdict { right = 0, wrong = 1, failed = 2 };

__host__ __device__ constexpr std::uint32_t transformed(std::uint32_t value) { return 3 * value + 1; }

// --- the two-stage pipeline, and three mistakes in its numbers ------------------------------------------------------
//
//   fetch     F0 | F1 | F2 | F3 |
//   compute      | C0 | C1 | C2 | C3
//
// The loop counts the batches that are fetched: one ahead of the batch that is computed.
enum class Mistake { none, grid_size, output_offset, last_batch };

template <Mistake mistake>
__global__ void __launch_bounds__(kThreads) two_stage(const std::uint32_t* from, std::uint32_t* to, int count) {
  using State = cuda::pipeline_shared_state<cuda::thread_scope_block, 2>;
  alignas(State) __shared__ unsigned char state[sizeof(State)];
  alignas(16) __shared__ std::uint32_t stages[2][kBatch];
  const auto block = cooperative_groups::this_thread_block();
  const auto grid = cooperative_groups::this_grid();
  auto pipeline = cuda::make_pipeline(block, reinterpret_cast<State*>(state));

  // The size of a grid counts its threads.
  const int step = static_cast<int>(mistake == Mistake::grid_size ? grid.size() : grid.num_blocks());
  // The words behind the last whole batch are a batch too, with its own size.
  const int batches = mistake == Mistake::last_batch ? count / kBatch : (count + kBatch - 1) / kBatch;
  const auto words = [&](int batch) { return min(kBatch, count - batch * kBatch); };

  const auto fetch = [&](int batch, int stage) {
    const cuda::aligned_size_t<4> bytes(words(batch) * sizeof(std::uint32_t));
    pipeline.producer_acquire();
    cuda::memcpy_async(block, stages[stage], from + batch * kBatch, bytes, pipeline);
    pipeline.producer_commit();
  };
  // Word w of a batch goes to the mirror image of its place, so most threads read words that others copied.
  const auto compute = [&](int batch, int stage, int place) {
    const int size = words(batch);
    pipeline.consumer_wait();
    for (int w = threadIdx.x; w < size; w += kThreads) {
      to[place * kBatch + w] = transformed(stages[stage][size - 1 - w]);
    }
    pipeline.consumer_release();
  };

  int present = blockIdx.x, stage = 0;
  fetch(present, stage);
  for (int next = present + step; next < batches; next += step) {
    fetch(next, stage ^ 1);
    // The results belong to the batch that was fetched before `next`.
    compute(present, stage, mistake == Mistake::output_offset ? next : present);
    present = next;
    stage ^= 1;
  }
  compute(present, stage, present);
}

// --- the double buffer, without its wait -----------------------------------------------------------------------------
// A block barrier orders the threads' own loads and stores. It does not wait for their copies.
template <bool kWaits>
__global__ void __launch_bounds__(kThreads) double_buffer(const std::uint32_t* from, std::uint32_t* to, int count) {
  alignas(16) __shared__ std::uint32_t stages[2][kBatch];
  for (int w = threadIdx.x; w < kBatch; w += kThreads) stages[0][w] = stages[1][w] = kUnwritten;
  __syncthreads();
  auto pipeline = cuda::make_pipeline();  // each thread's own

  const auto fetch = [&](int batch, int stage) {
    const int word = 4 * threadIdx.x;
    pipeline.producer_acquire();
    cuda::memcpy_async(reinterpret_cast<uint4*>(&stages[stage][word]),
                       reinterpret_cast<const uint4*>(from + batch * kBatch + word), cuda::aligned_size_t<16>(16),
                       pipeline);
    pipeline.producer_commit();
  };
  const auto compute = [&](int batch, int stage) {
    if constexpr (kWaits) pipeline.consumer_wait();
    __syncthreads();
    for (int w = threadIdx.x; w < kBatch; w += kThreads) {
      to[batch * kBatch + w] = transformed(stages[stage][kBatch - 1 - w]);
    }
    if constexpr (kWaits) pipeline.consumer_release();
    __syncthreads();
  };

  const int batches = count / kBatch, step = gridDim.x;
  int present = blockIdx.x, stage = 0;
  fetch(present, stage);
  for (int next = present + step; next < batches; next += step) {
    fetch(next, stage ^ 1);
    compute(present, stage);
    present = next;
    stage ^= 1;
  }
  compute(present, stage);
  // Both forms drain their copies before the block ends: the fault costs a result, not the context.
  cuda::pipeline_consumer_wait_prior<0>(pipeline);
}

// --- running them ----------------------------------------------------------------------------------------------------
using Kernel = void (*)(const std::uint32_t*, std::uint32_t*, int);

bool is_right(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) {
  const std::size_t count = from.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i / kBatch * kBatch, size = std::min<std::size_t>(kBatch, count - first);
    if (to[i] != transformed(from[first + size - 1 - (i - first)])) return false;
  }
  return std::all_of(to.begin() + count, to.end(), [](std::uint32_t word) { return word == kUnwritten; });
}

Verdict run(Kernel kernel, int blocks, int count) {
  std::vector<std::uint32_t> values(count), results(count + kGuard);
  for (int i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(i) * 2654435761u + 1;
  const std::size_t bytes = values.size() * sizeof(std::uint32_t),
                    result_bytes = results.size() * sizeof(std::uint32_t);
  std::uint32_t *from = nullptr, *to = nullptr;
  if (cudaMalloc(&from, bytes) != cudaSuccess || cudaMalloc(&to, result_bytes) != cudaSuccess) return Verdict::failed;
  if (cudaMemcpy(from, values.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) return Verdict::failed;
  if (cudaMemset(to, kUnwrittenByte, result_bytes) != cudaSuccess) return Verdict::failed;
  kernel<<<blocks, kThreads>>>(from, to, count);
  if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return Verdict::failed;
  if (cudaMemcpy(results.data(), to, result_bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return Verdict::failed;
  return is_right(values, results) ? Verdict::right : Verdict::wrong;
}

// Eight batches for each block, and fewer batches than threads in the grid: with a step of grid.size() a block visits
// one batch.
template <Mistake mistake>
Verdict run_two_stage(bool faulty) {
  constexpr int kBlocks = 8, kWhole = 8 * kBlocks * kBatch;
  static_assert(kWhole / kBatch < kBlocks * kThreads);
  constexpr int kCount = mistake == Mistake::last_batch ? kWhole + 37 : kWhole;
  return run(faulty ? two_stage<mistake> : two_stage<Mistake::none>, kBlocks, kCount);
}

// 4096 blocks of four batches run in several waves, so most blocks start with their code in the instruction cache, and
// their 64 MiB are more than an L2 holds. A block's first compute follows its first copy after some tens of
// instructions; no copy from global memory is as fast. The fault gives a right result only if every thread of every
// block is late.
Verdict run_double_buffer(bool faulty) {
  constexpr int kBlocks = 4096;
  return run(faulty ? double_buffer<false> : double_buffer<true>, kBlocks, 4 * kBlocks * kBatch);
}

// --- what depth costs ------------------------------------------------------------------------------------------------
constexpr int kRingThreads = 512, kStageBytes = 16 * 1024, kShallow = 2, kDeep = 8;

// Stands for any kernel with a ring. It is never launched: the query reads its registers.
__global__ void __launch_bounds__(kRingThreads) ring_kernel(std::uint32_t* words) {
  extern __shared__ std::uint32_t ring[];
  ring[threadIdx.x] = words[threadIdx.x];
  __syncthreads();
  words[threadIdx.x] = ring[kRingThreads - 1 - threadIdx.x];
}

// Resident blocks per SM; 0 where a block cannot have that much shared memory.
int resident_blocks(int depth) {
  const int bytes = depth * kStageBytes;
  int blocks = 0;
  if (cudaFuncSetAttribute(ring_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) return 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, ring_kernel, kRingThreads, bytes) != cudaSuccess) return 0;
  return blocks;
}

// The fault takes the deepest ring, the cure the deepest ring that costs no block. A lost block is the wrong result.
Verdict run_occupancy(bool faulty) {
  const int wanted = resident_blocks(kShallow);
  if (wanted == 0) return Verdict::failed;
  int depth = kDeep;
  while (!faulty && resident_blocks(depth) < wanted) --depth;
  const int blocks = resident_blocks(depth);
  std::printf("depth %d: %d blocks per SM, depth %d: %d\n", kShallow, wanted, depth, blocks);
  return blocks < wanted ? Verdict::wrong : Verdict::right;
}

struct Trap {
  const char* name;
  Verdict (*run)(bool faulty);
};

constexpr Trap kTraps[] = {
    {"grid_size", run_two_stage<Mistake::grid_size>},
    {"output_offset", run_two_stage<Mistake::output_offset>},
    {"last_batch", run_two_stage<Mistake::last_batch>},
    {"no_wait", run_double_buffer},
    {"occupancy", run_occupancy},
};

}  // namespace

int main(int count, char** arguments) {
  const bool faulty = count == 3 && std::strcmp(arguments[2], "fault") == 0;
  if (!faulty && (count != 3 || std::strcmp(arguments[2], "cure") != 0)) return static_cast<int>(Verdict::failed);
  for (const Trap& trap : kTraps) {
    if (std::strcmp(arguments[1], trap.name) == 0) return static_cast<int>(trap.run(faulty));
  }
  return static_cast<int>(Verdict::failed);
}
