// A launch, with dynamic shared memory beyond the default limit and the error of the launch itself.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice {

// `kernel` is a __global__ function or a cudaKernel_t, `arguments` its one parameter. After a failure CUDA's last error
// is cleared: the caller has it, and torch's next call must not find it.
cudaError_t launch(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                   void* arguments);

}  // namespace sluice
