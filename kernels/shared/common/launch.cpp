#include "kernels/shared/common/launch.h"

#include "kernels/shared/common/device.h"

namespace sluice {
namespace {

// Dynamic shared memory that every kernel may have. The driver's 48 KiB are for static and dynamic memory together.
constexpr int kDefaultLimit = 48 * 1024 - kStaticSharedMemory;

// A kernel's limit is per process, not per launch: a thread that set its own launch's size could lower it below another
// thread's coming launch. So all set the same number.
cudaError_t raise_limit(const void* kernel) {
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  const DeviceProperties* properties = nullptr;
  if (const cudaError_t status = device_properties(device, &properties); status != cudaSuccess) return status;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              most_dynamic_shared_memory(*properties));
}

}  // namespace

cudaError_t launch(const void* kernel, long long grid, int threads, int shared_memory, cudaStream_t stream,
                   void* arguments, Start start) {
  if (grid < 1 || grid > kMaxGrid) return cudaErrorInvalidConfiguration;
  if (shared_memory > kDefaultLimit) {
    if (const cudaError_t status = raise_limit(kernel); status != cudaSuccess) return cleared(status);
  }
  void* pointers[] = {arguments};
  cudaLaunchAttribute beside{};
  beside.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  beside.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_memory);
  config.stream = stream;
  config.attrs = &beside;
  config.numAttrs = start == Start::beside ? 1 : 0;
  return cleared(cudaLaunchKernelExC(&config, kernel, pointers));
}

}  // namespace sluice
