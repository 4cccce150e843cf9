// Who waits for whom around the default stream: eight kernels of 5 ms, each one block of one thread, and when each ran
// by the GPU's clock. Built and run by tests/gpu/test_traps.py.
//
//   stream_cases <case> [--json PATH]
//
//   legacy_between_blocking       eight blocking streams, an empty kernel on the legacy default stream between launches
//   legacy_between_non_blocking   the same with non-blocking streams
//   per_thread                    blocking streams, the empty kernels on the per-thread default stream
//   threads_on_legacy             eight host threads, each launches on the legacy default stream
//   threads_per_thread            eight host threads, each launches on its per-thread default stream
//
// The legacy default stream waits for all blocking streams, and they wait for it:
//
//   blocking      stream 0   [ kernel 0 ]                            non-blocking   stream 0   [ kernel 0 ]
//                 legacy                 |                                          legacy     | | |
//                 stream 1                [ kernel 1 ]                              stream 1    [ kernel 1 ]
//                 legacy                              |                             stream 2     [ kernel 2 ]
//                 stream 2                             [ kernel 2 ]
//
// The per-thread default stream is a blocking stream too, but only the legacy stream makes others wait.
//
// Prints {"case": ..., "gpu": ..., "spans_us": [[begin, end], ...]}, in microseconds from the first begin. Exit status:
// 0, or 2 for wrong usage or a CUDA error.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kKernels = 8;
constexpr unsigned long long kNanoseconds = 5'000'000;

struct Span {
  unsigned long long begin, end;  // nanoseconds
};

__device__ unsigned long long now() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
  return nanoseconds;
}

__global__ void spin(Span* span, unsigned long long nanoseconds) {
  const unsigned long long begin = now();
  unsigned long long end = begin;
  while (end - begin < nanoseconds) end = now();
  *span = {begin, end};
}

__global__ void nothing() {}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
  std::_Exit(2);  // from any thread, with the others still running
}

void launch_spin(cudaStream_t stream, Span* span, unsigned long long nanoseconds) {
  spin<<<1, 1, 0, stream>>>(span, nanoseconds);
  check(cudaGetLastError());
}

void launch_nothing(cudaStream_t stream) {
  nothing<<<1, 1, 0, stream>>>();
  check(cudaGetLastError());
}

// A kernel on each of eight streams, and after each an empty one on `between`.
void on_streams(unsigned flags, cudaStream_t between, Span* spans) {
  std::array<cudaStream_t, kKernels> streams;
  for (cudaStream_t& stream : streams) check(cudaStreamCreateWithFlags(&stream, flags));
  // First uses load modules and set up queues, and may wait for running kernels: the first round is a warm-up.
  for (const unsigned long long nanoseconds : {1000ull, kNanoseconds}) {
    for (int i = 0; i < kKernels; ++i) {
      launch_spin(streams[i], spans + i, nanoseconds);
      launch_nothing(between);
    }
    check(cudaDeviceSynchronize());
  }
  for (const cudaStream_t stream : streams) check(cudaStreamDestroy(stream));
}

// A kernel from each of eight host threads; cudaStreamPerThread is another stream in each.
void on_threads(cudaStream_t stream, Span* spans) {
  std::latch ready(kKernels);
  std::vector<std::thread> threads;
  for (int i = 0; i < kKernels; ++i) {
    threads.emplace_back([&ready, stream, span = spans + i] {
      check(cudaSetDevice(0));
      launch_spin(stream, span, 1000);  // makes the thread's stream
      check(cudaStreamSynchronize(stream));
      ready.arrive_and_wait();
      launch_spin(stream, span, kNanoseconds);
      check(cudaStreamSynchronize(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Case {
  const char* name;
  void (*run)(Span* spans);
};

constexpr Case kCases[] = {
    {"legacy_between_blocking", [](Span* spans) { on_streams(cudaStreamDefault, cudaStreamLegacy, spans); }},
    {"legacy_between_non_blocking", [](Span* spans) { on_streams(cudaStreamNonBlocking, cudaStreamLegacy, spans); }},
    {"per_thread", [](Span* spans) { on_streams(cudaStreamDefault, cudaStreamPerThread, spans); }},
    {"threads_on_legacy", [](Span* spans) { on_threads(cudaStreamLegacy, spans); }},
    {"threads_per_thread", [](Span* spans) { on_threads(cudaStreamPerThread, spans); }},
};

std::array<Span, kKernels> measured(const Case& chosen) {
  std::array<Span, kKernels> result;
  Span* spans = nullptr;
  check(cudaMalloc(&spans, sizeof(result)));
  chosen.run(spans);
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(result.data(), spans, sizeof(result), cudaMemcpyDeviceToHost));
  check(cudaFree(spans));
  return result;
}

std::string as_json(const char* name, const std::array<Span, kKernels>& spans) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0));
  unsigned long long first = spans[0].begin;
  for (const Span& span : spans) first = std::min(first, span.begin);
  std::string text = std::string("{\"case\": \"") + name + "\", \"gpu\": \"" + properties.name + "\", \"spans_us\": [";
  for (int i = 0; i < kKernels; ++i) {
    char pair[64];
    std::snprintf(pair, sizeof(pair), "%s[%.3f, %.3f]", i > 0 ? ", " : "", (spans[i].begin - first) / 1e3,
                  (spans[i].end - first) / 1e3);
    text += pair;
  }
  return text + "]}\n";
}

bool write(const char* path, const std::string& text) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  const bool is_written = std::fputs(text.c_str(), file) >= 0;
  return std::fclose(file) == 0 && is_written;
}

}  // namespace

int main(int count, char** arguments) {
  const bool writes = count == 4 && std::strcmp(arguments[2], "--json") == 0;
  if (count != 2 && !writes) return 2;
  // Each stream gets its own hardware queue: streams that share one may wait for each other without need.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  for (const Case& each : kCases) {
    if (std::strcmp(arguments[1], each.name) != 0) continue;
    const std::string text = as_json(each.name, measured(each));
    std::fputs(text.c_str(), stdout);
    return !writes || write(arguments[3], text) ? 0 : 2;
  }
  return 2;
}
