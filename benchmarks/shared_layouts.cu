// How the stages of a ring lie in shared memory: one behind another, or interleaved, all stages of a word side by side.
// A ring of cp.async in both layouts, for copies of 4, 8 and 16 bytes; each thread sums a word and its two neighbours.
//
//   stage_major   | stage 0: w0 w1 w2 ... | stage 1: w0 w1 w2 ... |
//   interleaved   | w0: s0 s1 .. | w1: s0 s1 .. | ...
//
//   nvcc -std=c++20 -O3 -arch=sm_90a benchmarks/shared_layouts.cu -o shared_layouts
//   ./shared_layouts --json layouts.json
//   ncu --clock-control none --csv --metrics l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum ./shared_layouts once
//
// The results are in docs/measurements/schedules.md.
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace {

constexpr int kThreads = 256, kMostStages = 8;

template <int Bytes>
struct alignas(Bytes) Cell {
  unsigned lanes[Bytes / 4];
};

struct StageMajor {
  static constexpr const char* kName = "stage_major";
  __device__ static int place(int stage, int word, int /*stages*/) { return stage * (kThreads + 2) + word; }
};
struct Interleaved {
  static constexpr const char* kName = "interleaved";
  __device__ static int place(int stage, int word, int stages) { return word * stages + stage; }
};

// Tiles of kThreads words; word w of a tile becomes the sum of words w - 1, w and w + 1 of the input.
template <class Layout, int Bytes, int Stages>
__global__ void __launch_bounds__(kThreads) ring(const Cell<Bytes>* from, Cell<Bytes>* to, int tiles) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* const cells = reinterpret_cast<Cell<Bytes>*>(shared);
  const int thread = threadIdx.x;
  const auto fetch = [&](int tile, int stage) {
    for (int w = thread; w < kThreads + 2; w += kThreads) {
      __pipeline_memcpy_async(cells + Layout::place(stage, w, Stages),
                              from + static_cast<long long>(tile) * kThreads + w, Bytes);
    }
  };
  int ahead = blockIdx.x;
  for (int s = 0; s < Stages; ++s, ahead += gridDim.x) {
    if (ahead < tiles) fetch(ahead, s);
    __pipeline_commit();
  }
  int stage = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ahead += gridDim.x) {
    __pipeline_wait_prior(Stages - 1);
    __syncthreads();
    Cell<Bytes> sum{};
    for (int w = 0; w < 3; ++w) {
      const Cell<Bytes> cell = cells[Layout::place(stage, thread + w, Stages)];
      for (int i = 0; i < Bytes / 4; ++i) sum.lanes[i] += cell.lanes[i];
    }
    to[static_cast<long long>(tile) * kThreads + thread] = sum;
    __syncthreads();
    if (ahead < tiles) fetch(ahead, stage);
    __pipeline_commit();
    stage = stage + 1 == Stages ? 0 : stage + 1;
  }
}

bool failed(cudaError_t status) {
  if (status != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  return status != cudaSuccess;
}

// Microseconds, the median of `launches`; negative where a result is wrong.
template <class Layout, int Bytes, int Stages>
float run(const unsigned* from, unsigned* to, long long bytes, int launches) {
  const int tiles = static_cast<int>(bytes / Bytes / kThreads), shared = Stages * (kThreads + 2) * Bytes;
  const auto kernel = ring<Layout, Bytes, Stages>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  int blocks = 0, multiprocessors = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, shared);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  cudaEvent_t start, end;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int i = 0; i < launches; ++i) {
    cudaEventRecord(start);
    kernel<<<multiprocessors * blocks, kThreads, shared>>>(reinterpret_cast<const Cell<Bytes>*>(from),
                                                           reinterpret_cast<Cell<Bytes>*>(to), tiles);
    cudaEventRecord(end);
    if (failed(cudaEventSynchronize(end))) return -1;
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, start, end);
    times.push_back(1000 * milliseconds);
  }
  std::vector<unsigned> head(4096), result(4096);
  cudaMemcpy(head.data(), from, head.size() * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(result.data(), to, result.size() * 4, cudaMemcpyDeviceToHost);
  constexpr int kLanes = Bytes / 4;
  for (std::size_t i = 0; i + 2 * kLanes < head.size(); ++i) {
    if (result[i] != head[i] + head[i + kLanes] + head[i + 2 * kLanes]) return -1;
  }
  std::nth_element(times.begin(), times.begin() + launches / 2, times.end());
  return times[launches / 2];
}

struct Row {
  int bytes, stages;
  float stage_major_us, interleaved_us;
};

template <int Bytes, int Stages = 1>
bool compare(const unsigned* from, unsigned* to, long long bytes, int launches, std::vector<Row>& rows) {
  const float major = run<StageMajor, Bytes, Stages>(from, to, bytes, launches);
  const float interleaved = run<Interleaved, Bytes, Stages>(from, to, bytes, launches);
  std::printf("%2d bytes, %d stages: %s %8.1f us, %s %8.1f us\n", Bytes, Stages, StageMajor::kName, major,
              Interleaved::kName, interleaved);
  if (major < 0 || interleaved < 0) return false;
  rows.push_back({Bytes, Stages, major, interleaved});
  if constexpr (Stages < kMostStages) return compare<Bytes, Stages + 1>(from, to, bytes, launches, rows);
  return true;
}

bool write_json(const char* path, const std::vector<Row>& rows) {
  cudaDeviceProp device{};
  if (failed(cudaGetDeviceProperties(&device, 0))) return false;
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"program\": \"shared_layouts\", \"gpu\": \"%s\", \"rows\": [", device.name);
  const char* separator = "\n";
  for (const Row& row : rows) {
    std::fprintf(file, "%s  {\"bytes\": %d, \"stages\": %d, \"stage_major_us\": %.1f, \"interleaved_us\": %.1f}",
                 separator, row.bytes, row.stages, row.stage_major_us, row.interleaved_us);
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

}  // namespace

// shared_layouts [once | --json PATH]. With `once` each kernel is launched once, for a profiler.
int main(int count, char** arguments) {
  constexpr long long kBytes = 256LL << 20;
  const bool once = count == 2 && std::string_view(arguments[1]) == "once";
  const char* const json = count == 3 && std::string_view(arguments[1]) == "--json" ? arguments[2] : nullptr;
  if (count > 1 && !once && json == nullptr) {
    std::fprintf(stderr, "shared_layouts [once | --json PATH], got %s\n", arguments[1]);
    return 2;
  }
  const int launches = once ? 1 : 15;
  unsigned *from = nullptr, *to = nullptr;
  if (failed(cudaMalloc(&from, kBytes + 64)) || failed(cudaMalloc(&to, kBytes))) return 2;
  std::vector<unsigned> values((kBytes + 64) / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned>(i * 2654435761u + 1);
  if (failed(cudaMemcpy(from, values.data(), kBytes + 64, cudaMemcpyHostToDevice))) return 2;
  std::vector<Row> rows;
  const bool right = compare<4>(from, to, kBytes, launches, rows) && compare<8>(from, to, kBytes, launches, rows) &&
                     compare<16>(from, to, kBytes, launches, rows);
  if (json != nullptr && !write_json(json, rows)) return 2;
  return right ? 0 : 1;
}
