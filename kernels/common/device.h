// What the host asks CUDA about devices. Answers are read once a device and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/common/device_properties.h"

namespace sluice {

// `status`, with CUDA's last error cleared where it is one: who gets the status reports or handles it, and torch, which
// looks at the last error after its own launches, would report it as theirs.
inline cudaError_t cleared(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status;
}

// Fills in `properties` for `device`; the pointer stays valid.
cudaError_t device_properties(int device, const DeviceProperties** properties);

// A sentence for the user: what failed, and for a driver or a device that does not fit, the versions.
std::string describe(cudaError_t status, int device);

}  // namespace sluice
