// Every pipe around the smallest kernel that shares words between threads, alone and within InterpretedPipe, and the
// same with its wait taken out: that has to be wrong, or the tests would not see a wait that is missing. Built and run
// by tests/gpu/test_rings.py.
#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/shared/pipeline/interpreted_pipe.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 128, kWords = 512, kTiles = 4000, kBlocks = 132;

// Does everything but wait.
template <class Pipe>
struct Unwaited : Pipe {
  using Pipe::Pipe;
  __device__ void consumer_wait() {}
};

// Word w of a tile goes to the mirror image of its place: by a thread that did not copy it.
template <class Pipe>
__global__ void __launch_bounds__(kThreads + Pipe::kProducers) mirror(const Word* from, Word* to, Ring settings) {
  extern __shared__ Word ring[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, settings, /*shares=*/true);
  const auto fetch = [&](long long tile, int stage) {
    pipe.copy(WordTile{
        .to = ring + stage * kWords, .from = reinterpret_cast<const char*>(from + tile * kWords), .words = kWords});
  };
  const auto compute = [&](long long tile, int stage) {
    for (int w = threadIdx.x; w < kWords; w += kThreads) to[tile * kWords + w] = ring[stage * kWords + kWords - 1 - w];
  };
  run_ring(pipe, settings.depth, blockIdx.x, kTiles, gridDim.x, fetch, compute);
}

template <class Pipe>
bool mirrors(const std::vector<std::uint32_t>& values, const Word* from, Word* to, Ring settings) {
  const std::size_t bytes = values.size() * sizeof(std::uint32_t);
  cudaMemset(to, 0, bytes);
  const int shared = settings.depth * kWords * static_cast<int>(sizeof(Word));
  cudaFuncSetAttribute(mirror<Pipe>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  const int threads = kThreads + producer_threads(settings.schedule);
  mirror<Pipe><<<kBlocks, threads, shared>>>(from, to, settings);
  std::vector<std::uint32_t> result(values.size());
  if (cudaMemcpy(result.data(), to, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) return false;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t word = i / 4, tile = word / kWords, mirrored = tile * kWords + kWords - 1 - word % kWords;
    if (result[i] != values[mirrored * 4 + i % 4]) return false;
  }
  return true;
}

// Right at every depth that the schedule has.
template <class Pipe>
bool is_right(Schedule schedule, const std::vector<std::uint32_t>& values, const Word* from, Word* to) {
  const int fixed = fixed_depth(schedule);
  for (int depth = fixed > 0 ? fixed : 1; depth <= (fixed > 0 ? fixed : kMaxDepth); ++depth) {
    if (!mirrors<Pipe>(values, from, to, {schedule, depth})) return false;
  }
  return true;
}

// Calls `body` for the schedule's pipe.
template <class Body>
bool with_pipe(Schedule schedule, Body&& body) {
  switch (schedule) {
#define SLUICE_RING(name, Pipe, ...) \
  case Schedule::name: return body.template operator()<Pipe>();
#include "kernels/shared/pipeline/rings.def"
    case Schedule::direct: break;
  }
  return false;
}

}  // namespace
}  // namespace sluice

// rings <schedule> [unwaited|interpreted]: exits with 0 where the result is right. A process for each, because a kernel
// whose copies land after it has ended takes the context with it.
int main(int count, char** arguments) {
  using namespace sluice;
  ScheduleRequest request;
  if (count < 2 || !parse_schedule(arguments[1], request)) return 2;
  std::vector<std::uint32_t> values(static_cast<std::size_t>(kTiles) * kWords * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * 2654435761u + 1);
  Word *from = nullptr, *to = nullptr;
  const std::size_t bytes = values.size() * sizeof(std::uint32_t);
  if (cudaMalloc(&from, bytes) != cudaSuccess || cudaMalloc(&to, bytes) != cudaSuccess) return 2;
  if (cudaMemcpy(from, values.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) return 2;
  const std::string_view how = count > 2 ? arguments[2] : "";
  const bool right = with_pipe(request.schedule, [&]<class Pipe>() {
    if (how == "unwaited") return is_right<Unwaited<Pipe>>(request.schedule, values, from, to);
    if (how == "interpreted") return is_right<InterpretedPipe>(request.schedule, values, from, to);
    return is_right<Pipe>(request.schedule, values, from, to);
  });
  return right && cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
