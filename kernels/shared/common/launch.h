// A launch, with dynamic shared memory beyond the default limit and the error of the launch itself.
#pragma once

#include <cuda_runtime_api.h>

namespace sluice {

// When a kernel starts: after the previous kernel of its stream, or during its last blocks. In the second case the
// previous kernel says when (begin_next), and this kernel waits for it (await_previous, both in launch.cuh) before it
// touches what the previous kernel writes.
enum class Start { behind, beside };

// `kernel` is a __global__ function or a cudaKernel_t, `arguments` its one parameter. A failure clears CUDA's last
// error: the caller has it, and torch's next call must not find it.
cudaError_t launch(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                   void* arguments, Start start = Start::behind);

}  // namespace sluice
