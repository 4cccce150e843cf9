// The engine of kernels/transfer in a C++ loop, without Python: the lower bound of a chunk's cost. For comparison the
// two classic loops over streams, and the rates of the host link. A kernel holds all streams until the copies of a rate
// are queued.
//
//   depth_first      for each chunk: copy in, copy out, on stream i mod 2
//   breadth_first    in waves of 8 chunks on as many streams: all copies in, then all copies out
//
//   nvcc -std=c++20 -O3 -arch=native -I. benchmarks/stream_loop.cu kernels/transfer/*.cpp -o stream_loop
//   ./stream_loop [MiB]
//
// The results are in docs/measurements/streams.md.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/transfer/cuda_driver.h"
#include "kernels/transfer/engine.h"

namespace {

using namespace sluice::transfer;

constexpr int kDepth = 3, kWave = 8, kSamples = 5;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "stream_loop: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

char* pinned(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable));
  return static_cast<char*>(memory);
}

char* on_device(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)));
  return static_cast<char*>(memory);
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

double seconds(const std::function<void()>& run) {
  run();
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(samples);
}

struct Job {
  char *source, *result;
  std::int64_t bytes, chunk;

  std::int64_t chunks() const { return (bytes + chunk - 1) / chunk; }
  std::size_t size(std::int64_t i) const { return static_cast<std::size_t>(std::min(chunk, bytes - i * chunk)); }
};

// --- the engine
// ------------------------------------------------------------------------------------------------------------
class Loop {
 public:
  explicit Loop(const Job& job) : job_(job), slots_(on_device(2 * kDepth * job.chunk)) {
    options_.event_sets = 2 * kDepth;
    std::string error;
    auto driver = make_cuda_driver(0, options_.events(), options_.timed_events(), error);
    if (driver == nullptr) {
      std::fprintf(stderr, "stream_loop: %s\n", error.c_str());
      std::exit(1);
    }
    engine_ = std::make_unique<Engine>(std::move(driver), options_);
  }
  ~Loop() {
    engine_.reset();
    cudaFree(slots_);
  }

  void run() {
    engine_->begin(nullptr);
    const std::int64_t chunks = job_.chunks();
    for (std::int64_t i = 0; i < std::min<std::int64_t>(kDepth, chunks); ++i) fetch(i);
    for (std::int64_t i = 0; i < chunks; ++i) {
      std::vector<int> waits = {event(i, Mark::fetched)};
      if (i - kDepth >= engine_->landed()) waits.push_back(event(i - kDepth, Mark::stored));
      while (!engine_->acquire(waits, set(i), 100)) {
      }
      // The least that `fn` would launch: the slot's input to its output.
      check(cudaMemcpyAsync(out(i), in(i), job_.size(i), cudaMemcpyDeviceToDevice,
                            static_cast<cudaStream_t>(engine_->native_stream(Stream::compute))));
      engine_->commit(set(i));
      engine_->store(command(i, job_.result, out(i), {event(i, Mark::computed)}));
      if (i + kDepth < chunks) fetch(i + kDepth);
    }
    while (!engine_->wait_landed(chunks, 100)) {
    }
    engine_->take_times();
  }

 private:
  int set(std::int64_t i) const { return static_cast<int>(i % options_.event_sets); }
  int event(std::int64_t i, Mark mark) const { return event_of(set(i), mark); }
  char* in(std::int64_t i) const { return slots_ + i % kDepth * job_.chunk; }
  char* out(std::int64_t i) const { return in(i) + kDepth * job_.chunk; }

  std::shared_ptr<Command> command(std::int64_t i, char* host, char* slot, std::vector<int> waits) const {
    auto made = std::make_shared<Command>();
    const std::int64_t sizes[] = {static_cast<std::int64_t>(job_.size(i))}, strides[] = {1};
    made->set = set(i);
    made->waits = std::move(waits);
    made->copies.push_back({make_copy(host + i * job_.chunk, slot, 1, 1, sizes, strides), Route::direct});
    return made;
  }

  void fetch(std::int64_t i) {
    while (!engine_->wait_landed(i - options_.event_sets + 1, 100)) {
    }
    std::vector<int> waits;
    if (i - kDepth >= engine_->landed()) waits = {event(i - kDepth, Mark::computed)};
    engine_->fetch(command(i, job_.source, in(i), std::move(waits)));
  }

  const Job job_;
  char* const slots_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

// --- the classic loops
// -----------------------------------------------------------------------------------------------------
class Streams {
 public:
  explicit Streams(int count) : all_(static_cast<std::size_t>(count)) {
    for (cudaStream_t& stream : all_) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Streams() {
    for (cudaStream_t stream : all_) cudaStreamDestroy(stream);
  }
  cudaStream_t operator[](std::int64_t i) const { return all_[static_cast<std::size_t>(i) % all_.size()]; }

 private:
  std::vector<cudaStream_t> all_;
};

void copy_in(const Job& job, std::int64_t i, char* slot, cudaStream_t stream) {
  check(cudaMemcpyAsync(slot, job.source + i * job.chunk, job.size(i), cudaMemcpyHostToDevice, stream));
}
void copy_out(const Job& job, std::int64_t i, char* slot, cudaStream_t stream) {
  check(cudaMemcpyAsync(job.result + i * job.chunk, slot, job.size(i), cudaMemcpyDeviceToHost, stream));
}

void depth_first(const Job& job, const Streams& streams, char* slots) {
  for (std::int64_t i = 0; i < job.chunks(); ++i) {
    char* const slot = slots + i % 2 * job.chunk;
    copy_in(job, i, slot, streams[i % 2]);
    copy_out(job, i, slot, streams[i % 2]);
  }
  check(cudaDeviceSynchronize());
}

void breadth_first(const Job& job, const Streams& streams, char* slots) {
  for (std::int64_t begin = 0; begin < job.chunks(); begin += kWave) {
    const std::int64_t end = std::min(begin + kWave, job.chunks());
    for (std::int64_t i = begin; i < end; ++i) copy_in(job, i, slots + (i - begin) * job.chunk, streams[i - begin]);
    for (std::int64_t i = begin; i < end; ++i) copy_out(job, i, slots + (i - begin) * job.chunk, streams[i - begin]);
  }
  check(cudaDeviceSynchronize());
}

// --- the host link
// --------------------------------------------------------------------------------------------------------------
__global__ void hold(const volatile int* released) {
  while (*released == 0) {
  }
}

// GB/s of 16 consecutive copies of 512 MiB in each requested direction, on `devices` devices at once.
double host_link_rate(bool in, bool out, int devices = 1) {
  constexpr std::int64_t kBytes = 512LL << 20;
  constexpr int kCopies = 16;
  struct HostLink {
    char* const host[2] = {pinned(kBytes), pinned(kBytes)};
    char* const device[2] = {on_device(kBytes), on_device(kBytes)};
    const Streams streams{2};
  };
  using HostLinkPtr = std::unique_ptr<HostLink>;
  std::vector<HostLinkPtr> links(static_cast<std::size_t>(devices));
  const auto on_all = [&](const auto& work) {
    for (int i = 0; i < devices; ++i) {
      check(cudaSetDevice(i));
      work(links[static_cast<std::size_t>(i)]);
    }
  };
  int* released = nullptr;
  check(cudaHostAlloc(reinterpret_cast<void**>(&released), sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
  on_all([](HostLinkPtr& link) {
    link = std::make_unique<HostLink>();
    for (char* host : link->host) std::memset(host, 1, kBytes);
  });
  std::vector<double> rates;
  for (int sample = 0; sample < kSamples; ++sample) {
    *static_cast<volatile int*>(released) = 0;
    on_all([&](HostLinkPtr& link) {
      for (int d = 0; d < 2; ++d) hold<<<1, 1, 0, link->streams[d]>>>(released);
      for (int i = 0; i < kCopies; ++i) {
        if (in)
          check(cudaMemcpyAsync(link->device[0], link->host[0], kBytes, cudaMemcpyHostToDevice, link->streams[0]));
        if (out)
          check(cudaMemcpyAsync(link->host[1], link->device[1], kBytes, cudaMemcpyDeviceToHost, link->streams[1]));
      }
    });
    const auto start = std::chrono::steady_clock::now();
    *static_cast<volatile int*>(released) = 1;
    on_all([](HostLinkPtr&) { check(cudaDeviceSynchronize()); });
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rates.push_back(static_cast<double>(kBytes) * kCopies * (in + out) * devices / elapsed / 1e9);
  }
  on_all([](HostLinkPtr& link) {
    for (char* host : link->host) cudaFreeHost(host);
    for (char* device : link->device) cudaFree(device);
    link.reset();
  });
  cudaFreeHost(released);
  check(cudaSetDevice(0));
  return median(rates);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 1024) << 20;
  const double h2d = host_link_rate(true, false), d2h = host_link_rate(false, true),
               duplex = host_link_rate(true, true);
  std::printf("link: h2d %.2f, d2h %.2f, both %.2f GB/s\n", h2d, d2h, duplex);
  int devices = 0;
  check(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    std::printf("all %d devices at once: h2d %.2f, d2h %.2f, both %.2f GB/s\n", devices,
                host_link_rate(true, false, devices), host_link_rate(false, true, devices),
                host_link_rate(true, true, devices));
  }
  Job job{pinned(bytes), pinned(bytes), bytes, 0};
  for (std::int64_t i = 0; i < bytes; ++i) job.source[i] = static_cast<char>(i * 31 >> 7);
  std::printf("%12s %9s | engine: ms, efficiency, us a chunk | depth_first | breadth_first: ms, efficiency\n", "chunk",
              "floor ms");
  for (job.chunk = 64 << 10; job.chunk <= std::min<std::int64_t>(bytes, 256 << 20); job.chunk *= 2) {
    const double ends = static_cast<double>(std::min(job.chunk, bytes)) * (1 / h2d + 1 / d2h) / 1e9;
    const double both = static_cast<double>(bytes - job.chunk) * 2 / duplex / 1e9;
    const double floor = both + ends;
    std::memset(job.result, 0, static_cast<std::size_t>(bytes));
    double engine;
    {
      Loop loop(job);
      engine = seconds([&] { loop.run(); });
    }
    const bool right = std::memcmp(job.source, job.result, static_cast<std::size_t>(bytes)) == 0;
    const Streams streams(kWave);
    char* const slots = on_device(kWave * job.chunk);
    const double depth = seconds([&] { depth_first(job, streams, slots); });
    const double breadth = seconds([&] { breadth_first(job, streams, slots); });
    cudaFree(slots);
    std::printf("%8lld KiB %9.2f | %8.2f %6.3f %7.1f | %8.2f %6.3f | %8.2f %6.3f%s\n",
                static_cast<long long>(job.chunk >> 10), 1e3 * floor, 1e3 * engine, floor / engine,
                1e6 * engine / static_cast<double>(job.chunks()), 1e3 * depth, floor / depth, 1e3 * breadth,
                floor / breadth, right ? "" : "   WRONG");
    if (!right) return 1;
  }
  return 0;
}
