#include "kernels/transfer/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/shared/common/device.h"
#include "kernels/shared/common/per_process.h"
#include "kernels/transfer/numa.h"

namespace sluice::transfer {
namespace {

// Created eight at a time: creating a stream waits for running kernels, which would serialize threads that start
// together. Handed out round robin: eight hardware queues serve streams in the order of their creation.
constexpr int kStreamsAtOnce = 8;
struct Spare {  // never destroyed: CUDA may be gone when static objects are
  std::mutex mutex;
  std::map<int, std::deque<cudaStream_t>> streams;  // streams by device
};

void CUDART_CB sleep_on_stream(void* microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(reinterpret_cast<std::intptr_t>(microseconds)));
}

// The calling thread's current device must be the driver's.
class CudaDriver final : public Driver {
 public:
  CudaDriver(int device, int events, int timed) : device_(device), events_(static_cast<std::size_t>(events)) {
    std::string error;
    for (cudaStream_t& stream : streams_) {
      stream = static_cast<cudaStream_t>(take_stream(device_, error));
      if (stream == nullptr) {
        error_ = error;
        return;
      }
    }
    // The chunks' events order and time the copies. Waiting for them spins: a blocking event raises an interrupt, which
    // takes longer than a small copy. Waiting for the ring blocks, because other threads need the core.
    for (int i = 0; i < events; ++i) {
      const unsigned flags = i < timed ? cudaEventDefault : cudaEventBlockingSync | cudaEventDisableTiming;
      if (!check(cudaEventCreateWithFlags(&events_[static_cast<std::size_t>(i)], flags))) return;
    }
    char bus_id[32] = {};
    if (cleared(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device_)) == cudaSuccess)
      node_ = node_of_pci_device(bus_id);
  }

  ~CudaDriver() override {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) give_stream_back(device_, stream);
    }
    cudaGetLastError();
  }

  void attach() override { check(cudaSetDevice(device_)); }
  bool shares_memory() const override { return false; }
  int node() const override { return node_; }
  void* native_stream(Stream stream) const override { return streams_[static_cast<int>(stream)]; }

  bool record(Stream stream, int event) override { return record_foreign(native_stream(stream), event); }
  bool wait(Stream stream, int event) override { return make_wait(native_stream(stream), event); }
  bool record_foreign(void* stream, int event) override {
    return check(cudaEventRecord(at(event), static_cast<cudaStream_t>(stream)));
  }
  bool make_wait(void* stream, int event) override {
    return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), at(event), 0));
  }
  bool complete(int event) override {
    const cudaError_t status = cudaEventQuery(at(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status);
    return true;
  }
  bool synchronize(int event) override { return check(cudaEventSynchronize(at(event))); }
  double seconds(int from, int to) override {
    float milliseconds = 0;
    return check(cudaEventElapsedTime(&milliseconds, at(from), at(to))) ? milliseconds * 1e-3 : 0;
  }

  bool copy(Stream stream, const DeviceCopy& copy) override {
    const cudaStream_t on = streams_[static_cast<int>(stream)];
    const auto span = static_cast<std::size_t>(copy.span);
    if (copy.rows == 1) return check(cudaMemcpyAsync(copy.target, copy.source, span, cudaMemcpyDefault, on));
    return check(cudaMemcpy2DAsync(copy.target, static_cast<std::size_t>(copy.target_pitch), copy.source,
                                   static_cast<std::size_t>(copy.source_pitch), span,
                                   static_cast<std::size_t>(copy.rows), cudaMemcpyDefault, on));
  }

  bool delay(Stream stream, int microseconds) override {
    return check(cudaLaunchHostFunc(streams_[static_cast<int>(stream)], sleep_on_stream,
                                    reinterpret_cast<void*>(static_cast<std::intptr_t>(microseconds))));
  }

  // Not cudaHostAlloc: pages are placed near the device before they are pinned, and no more than requested.
  char* allocate_pinned(std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    prefer_node(memory, size, node_);
    (void)madvise(memory, size, MADV_HUGEPAGE);
    if (check(cudaHostRegister(memory, size, cudaHostRegisterPortable))) return static_cast<char*>(memory);
    munmap(memory, size);
    return nullptr;
  }
  void free_pinned(char* memory, std::int64_t bytes) override {
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
    munmap(memory, static_cast<std::size_t>(bytes));
  }

  std::string error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  cudaEvent_t at(int event) const { return events_[static_cast<std::size_t>(event)]; }

  bool check(cudaError_t status) {
    if (status == cudaSuccess) return true;
    cudaGetLastError();
    const std::lock_guard lock(mutex_);
    error_ = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
    return false;
  }

  int device_;
  int node_ = -1;
  cudaStream_t streams_[kStreams] = {};
  std::vector<cudaEvent_t> events_;
  mutable std::mutex mutex_;
  std::string error_;
};

}  // namespace

std::unique_ptr<Driver> make_cuda_driver(int device, int events, int timed, std::string& error) {
  auto driver = std::make_unique<CudaDriver>(device, events, timed);
  error = driver->error();
  if (!error.empty()) return nullptr;
  return driver;
}

void* take_stream(int device, std::string& error) {
  Spare& spare = PerProcess<Spare>::get();
  const std::lock_guard lock(spare.mutex);
  std::deque<cudaStream_t>& streams = spare.streams[device];
  if (streams.empty()) {
    for (int i = 0; i < kStreamsAtOnce; ++i) {
      cudaStream_t stream = nullptr;
      const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      if (status != cudaSuccess) {
        cudaGetLastError();
        error = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
        break;
      }
      streams.push_back(stream);
    }
  }
  if (streams.empty()) return nullptr;
  const cudaStream_t stream = streams.front();
  streams.pop_front();
  return stream;
}

void give_stream_back(int device, void* stream) {
  Spare& spare = PerProcess<Spare>::get();
  const std::lock_guard lock(spare.mutex);
  spare.streams[device].push_back(static_cast<cudaStream_t>(stream));
}

std::string device_abilities(int device) {
  const struct {
    const char* name;
    cudaDeviceAttr attribute;
  } wanted[] = {
      {"copy_engines", cudaDevAttrAsyncEngineCount},
      {"concurrent_kernels", cudaDevAttrConcurrentKernels},
      {"pageable_memory_access", cudaDevAttrPageableMemoryAccess},
      {"host_register", cudaDevAttrHostRegisterSupported},
      {"host_register_read_only", cudaDevAttrHostRegisterReadOnlySupported},
  };
  std::string text;
  for (const auto& [name, attribute] : wanted) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) cudaGetLastError();
    text += std::string(text.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(value);
  }
  return text + "}";
}

}  // namespace sluice::transfer
