// Launches with much dynamic shared memory, from one thread and from two. Exit status: 0 where all is as `mode` says.
//
//   threads    two threads launch one kernel with two sizes: no launch fails
//   unsafe     the same, each setting the kernel's limit to what its own launch needs: launches fail
//   refused    a launch that is refused leaves no error behind
//   default    sizes around the limit that needs no permission: no launch fails
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "kernels/shared/common/device.h"
#include "kernels/shared/common/launch.cuh"

namespace {

struct Arguments {
  int words;
  int* sum;
};

// Has as much static shared memory as a kernel may.
__global__ void touch(const __grid_constant__ Arguments a) {
  extern __shared__ int ring[];
  __shared__ alignas(16) int kept[sluice::kStaticSharedMemory / 4];
  kept[threadIdx.x] = 1;
  ring[a.words - 1 - threadIdx.x] = kept[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(a.sum, ring[a.words - 1]);
}

using Launch = std::function<cudaError_t(int bytes, int* sum)>;

cudaError_t launch(int bytes, int* sum) {
  return sluice::launch_kernel(touch, 1, 32, bytes, nullptr, Arguments{bytes / 4, sum});
}

cudaError_t launch_with_own_limit(int bytes, int* sum) {
  cudaFuncSetAttribute(touch, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  Arguments a{bytes / 4, sum};
  void* pointers[] = {&a};
  return cudaLaunchKernel(reinterpret_cast<const void*>(touch), dim3(1), dim3(32), pointers, bytes, nullptr);
}

// Launches that failed, of `times` by each of two threads.
int failures(const Launch& launch, int most, int times, int* sum) {
  std::atomic<int> failed = 0;
  const auto work = [&](int bytes) {
    for (int i = 0; i < times; ++i) failed += launch(bytes, sum) != cudaSuccess;
  };
  std::thread other(work, 60 * 1024);
  work(most);
  other.join();
  return failed;
}

}  // namespace

int main(int, char** arguments) {
  int* sum = nullptr;
  const sluice::DeviceProperties* properties = nullptr;
  if (cudaMalloc(&sum, sizeof(int)) != cudaSuccess || cudaMemset(sum, 0, sizeof(int)) != cudaSuccess) return 2;
  if (sluice::device_properties(0, &properties) != cudaSuccess) return 2;
  const int most = sluice::most_dynamic_shared_memory(*properties);
  constexpr int kTimes = 2000;
  int failed = 0;
  if (std::strcmp(arguments[1], "threads") == 0) {
    failed = failures(launch, most, kTimes, sum);
    int ran = 0;
    if (cudaMemcpy(&ran, sum, sizeof(int), cudaMemcpyDeviceToHost) != cudaSuccess) return 2;
    std::printf("%d of %d launches failed, %d ran\n", failed, 2 * kTimes, ran);
    return failed != 0 || ran != 2 * kTimes;
  }
  if (std::strcmp(arguments[1], "unsafe") == 0) {
    for (int round = 0; round < 50 && failed == 0; ++round) failed = failures(launch_with_own_limit, most, kTimes, sum);
    return failed == 0;
  }
  if (std::strcmp(arguments[1], "default") == 0) {
    // Permission outlives the launch that got it, so the sizes rise.
    constexpr int kDefault = 48 * 1024;
    for (int bytes = kDefault - 256; bytes <= kDefault + 64; bytes += 16) failed += launch(bytes, sum) != cudaSuccess;
    std::printf("%d launches failed\n", failed);
    return failed;
  }
  const cudaError_t refused = launch(properties->shared_memory_per_block, sum);
  const cudaError_t left = cudaGetLastError();
  const cudaError_t unknown = sluice::device_properties(63, &properties);
  const cudaError_t left_again = cudaGetLastError();
  std::printf("%s, then %s; %s, then %s\n", cudaGetErrorName(refused), cudaGetErrorName(left),
              cudaGetErrorName(unknown), cudaGetErrorName(left_again));
  return refused == cudaSuccess || unknown == cudaSuccess || left != cudaSuccess || left_again != cudaSuccess;
}
