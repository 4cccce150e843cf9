// Launching a kernel whose one parameter is a structure.
#pragma once

#include "kernels/common/launch.h"

namespace sluice {

// `kernel` is a cudaKernel_t.
template <class Arguments>
cudaError_t launch_kernel(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                          const Arguments& arguments) {
  return launch(kernel, grid, threads, shared_memory, stream, const_cast<Arguments*>(&arguments));
}

template <class Arguments>
cudaError_t launch_kernel(void (*kernel)(Arguments), long long grid, int threads, int shared_memory,
                          cudaStream_t stream, const Arguments& arguments) {
  return launch_kernel(reinterpret_cast<const void*>(kernel), grid, threads, shared_memory, stream, arguments);
}

}  // namespace sluice
