// The device of a call. A GPU in _C_cuda (ops/cuda/device.cpp), the CPU in _C (ops/cpu/device.cpp).
#pragma once

#include <optional>

#include "kernels/shared/common/device_properties.h"

namespace sluice {

// Makes a GPU current for its lifetime. Its end restores the former GPU, without making a context on a GPU that has
// none.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  void* handle_ = nullptr;
};

// Holds a GPU, which is current for the lifetime, and torch's current stream of it; or the CPU.
class DeviceScope {
 public:
  DeviceScope(const char* op, int device);

  const char* op() const { return op_; }
  int index() const { return index_; }
  bool is_cpu() const { return properties_ == nullptr; }
  const DeviceProperties* properties() const { return properties_; }  // null for the CPU
  void* stream() const { return stream_; }

 private:
  const char* op_;
  int index_;
  const DeviceProperties* properties_ = nullptr;
  void* stream_ = nullptr;
  std::optional<DeviceGuard> guard_;  // none if the device is already current
};

}  // namespace sluice
