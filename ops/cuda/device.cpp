#include "ops/common/device.h"

#include <torch/csrc/stable/accelerator.h>

#include "kernels/shared/common/device.h"
#include "ops/cuda/check_cuda.h"

// Only torch builds with CUDA define this; weak, so that this library loads under any of them.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device, void** stream) __attribute__((weak));

namespace sluice {

DeviceGuard::DeviceGuard(int device) {
  DeviceGuardHandle handle = nullptr;
  check(aoti_torch_create_device_guard(device, &handle) == 0, "sluice: torch could not make cuda:", device, " current");
  handle_ = handle;
}

DeviceGuard::~DeviceGuard() { aoti_torch_delete_device_guard(static_cast<DeviceGuardHandle>(handle_)); }

DeviceScope::DeviceScope(const char* op, int device) : op_(op), index_(device) {
  if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard_.emplace(device);
  check(aoti_torch_get_current_cuda_stream != nullptr, op, ": this build of torch has no CUDA");
  check(aoti_torch_get_current_cuda_stream(device, &stream_) == 0, op,
        ": torch has no current stream on cuda:", device);
  check_cuda(op, device_properties(device, &properties_), device);
}

}  // namespace sluice
