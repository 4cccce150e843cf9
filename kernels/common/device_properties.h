// What a plan needs to know about a device. Host-only and free of CUDA types, so that plans can be
// made and tested for any device on a machine that has none.
#pragma once

namespace sluice {

struct DeviceProperties {
  int compute_capability = 90;  // major * 10 + minor
  int multiprocessors = 132;
  int threads_per_multiprocessor = 2048;
  int shared_memory_per_multiprocessor = 233472;  // bytes
  int shared_memory_per_block = 232448;           // bytes, with opt-in
};

// Bytes of static shared memory that a kernel with dynamic shared memory may have beside it: the most that a pipe keeps
// (kernels/pipeline/pipes.cuh).
inline constexpr int kStaticSharedMemory = 144;

// The most dynamic shared memory that a plan gives a block: one number for all kernels, so that what one launch allows
// its kernel is what every other launch of it needs (launch.h).
constexpr int most_dynamic_shared_memory(const DeviceProperties& device) {
  return device.shared_memory_per_block - kStaticSharedMemory;
}

inline constexpr long long kMaxGrid = 2147483647;  // blocks of a launch

// The device that plans are made for where none is named and none is present: one NVIDIA H200.
inline constexpr DeviceProperties kH200{};

}  // namespace sluice
