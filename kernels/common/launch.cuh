// Launching: dynamic shared memory beyond the default limit, and the error of the launch itself.
#pragma once

#include <cuda_runtime.h>

namespace sluice {

// `kernel` is a __global__ function or a cudaKernel_t. Kernels may use 48 KiB of dynamic shared memory; more has to be
// asked for, once a kernel and device.
template <class Arguments>
cudaError_t launch_kernel(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                          const Arguments& arguments) {
  constexpr int kDefaultLimit = 48 * 1024;
  constexpr long long kMaxGrid = 2147483647;
  if (grid < 1 || grid > kMaxGrid) return cudaErrorInvalidConfiguration;
  if (shared_memory > kDefaultLimit) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_memory);
    if (status != cudaSuccess) return status;
  }
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  const cudaError_t status = cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(threads)),
                                              pointers, static_cast<std::size_t>(shared_memory), stream);
  if (status != cudaSuccess) cudaGetLastError();
  return status;
}

template <class Arguments>
cudaError_t launch_kernel(void (*kernel)(Arguments), long long grid, int threads, int shared_memory, cudaStream_t stream,
                          const Arguments& arguments) {
  return launch_kernel(reinterpret_cast<const void*>(kernel), grid, threads, shared_memory, stream, arguments);
}

}  // namespace sluice
