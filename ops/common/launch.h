// From an op to a kernel: the device's guard, stream and properties, and CUDA's errors as text.
#pragma once

#ifdef SLUICE_CUDA_LIBRARY

#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "kernels/common/device.h"
#include "ops/common/checks.h"

// Only torch builds with CUDA define this; weak, so that this library loads under any of them.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream) __attribute__((weak));

namespace sluice {

inline void check_cuda(const char* op, cudaError_t status, int device) {
  check(status == cudaSuccess, op, ": CUDA device ", device, " failed with ",
        status == cudaSuccess ? std::string() : describe(status, device));
}

inline const DeviceProperties& properties_of(const char* op, int device) {
  const DeviceProperties* properties = nullptr;
  check_cuda(op, device_properties(device, &properties), device);
  return *properties;
}

// Makes `device` current for its lifetime and holds torch's current stream of it.
class DeviceScope {
 public:
  DeviceScope(const char* op, int device) : op_(op), device_(device) {
    if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard_.emplace(device);
    check(aoti_torch_get_current_cuda_stream != nullptr, op, ": this build of torch has no CUDA");
    void* stream = nullptr;
    check(aoti_torch_get_current_cuda_stream(device, &stream) == 0, op,
          ": torch has no current stream on cuda:", device);
    stream_ = static_cast<cudaStream_t>(stream);
  }
  int index() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  void check_launch(cudaError_t status) const { check_cuda(op_, status, device_); }

 private:
  const char* op_;
  int device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;  // none if the device is already current
  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
