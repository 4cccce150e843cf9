// Device queries of the host. Results are read once per device and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/shared/common/device_properties.h"

namespace sluice {

// `status`, with CUDA's last error cleared if it is one: the caller reports or handles the status; torch, which checks
// the last error after its own launches, would report it as theirs.
inline cudaError_t cleared(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return status;
}

// A function of the CUDA driver, which is not linked; null where the driver has none of that name.
void* driver_function(const char* name);

// Fills in `properties` for `device`; the pointer stays valid.
cudaError_t device_properties(int device, const DeviceProperties** properties);

// A sentence for the user: what failed, and the versions if driver or device do not fit.
std::string describe(cudaError_t status, int device);

}  // namespace sluice
