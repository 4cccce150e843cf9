// Launching a kernel whose one parameter is a structure.
#pragma once

#include "kernels/shared/common/launch.h"

namespace sluice {

// `kernel` is a cudaKernel_t.
template <class Arguments>
cudaError_t launch_kernel(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                          const Arguments& arguments, Start start = Start::behind) {
  return launch(kernel, grid, threads, shared_memory, stream, const_cast<Arguments*>(&arguments), start);
}

template <class Arguments>
cudaError_t launch_kernel(void (*kernel)(Arguments), long long grid, int threads, int shared_memory,
                          cudaStream_t stream, const Arguments& arguments, Start start = Start::behind) {
  return launch_kernel(reinterpret_cast<const void*>(kernel), grid, threads, shared_memory, stream, arguments, start);
}

#ifdef __CUDACC__
// Once all blocks have called this, the stream's next kernel may start.
__device__ __forceinline__ void begin_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

// After this, all writes of the previous kernel are visible.
__device__ __forceinline__ void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}
#endif

}  // namespace sluice
