// The properties of a device that plans need. Host-only and free of CUDA types, so that plans for any device are made
// and tested on a machine without one.
#pragma once

namespace sluice {

struct DeviceProperties {
  int compute_capability = 90;  // major * 10 + minor
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  int shared_memory_per_multiprocessor = 233472;  // bytes
  int shared_memory_per_block = 232448;           // bytes, with opt-in

  bool operator==(const DeviceProperties&) const = default;
};

// Static shared memory that a kernel with dynamic shared memory may also have: the largest of a pipe
// (kernels/shared/pipeline/pipes.cuh).
inline constexpr int kStaticSharedMemory = 144;

// The largest dynamic shared memory of a block: one number for all kernels, so that every launch of a kernel sets the
// same limit (launch.h).
constexpr int most_dynamic_shared_memory(const DeviceProperties& device) {
  return device.shared_memory_per_block - kStaticSharedMemory;
}

inline constexpr long long kMaxGrid = 2147483647;  // blocks of a launch

// The default device of plans if none is named and none is present: one NVIDIA H200.
inline constexpr DeviceProperties kH200{};

}  // namespace sluice
