// Launching: dynamic shared memory beyond the default limit, and the error of the launch itself.
#pragma once

#include <cuda_runtime.h>

namespace sluice {

// Kernels may use 48 KiB of dynamic shared memory; more has to be asked for, once a kernel and device.
template <class Arguments>
cudaError_t launch_kernel(void (*kernel)(Arguments), long long grid, int threads, int shared_memory, cudaStream_t stream,
                          const Arguments& arguments) {
  constexpr int kDefaultLimit = 48 * 1024;
  constexpr long long kMaxGrid = 2147483647;
  if (grid < 1 || grid > kMaxGrid) return cudaErrorInvalidConfiguration;
  if (shared_memory > kDefaultLimit) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_memory);
    if (status != cudaSuccess) return status;
  }
  kernel<<<static_cast<unsigned>(grid), threads, shared_memory, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace sluice
