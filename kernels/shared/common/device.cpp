#include "kernels/shared/common/device.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace sluice {
namespace {

constexpr int kMaxDevices = 64;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Plans as for a GPU with less shared memory, where the environment has SLUICE_SHARED_MEMORY: bytes of a block.
void limit_shared_memory(DeviceProperties& properties) {
  const char* const wanted = std::getenv("SLUICE_SHARED_MEMORY");
  if (wanted == nullptr || *wanted == '\0') return;
  const int reserved = properties.shared_memory_per_multiprocessor - properties.shared_memory_per_block;
  const long long own = properties.shared_memory_per_block;
  properties.shared_memory_per_block = static_cast<int>(std::min(own, std::atoll(wanted)));
  properties.shared_memory_per_multiprocessor = properties.shared_memory_per_block + reserved;
}

cudaError_t read_properties(int device, DeviceProperties& properties) {
  int major = 0, minor = 0;
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {
      {cudaDevAttrComputeCapabilityMajor, &major},
      {cudaDevAttrComputeCapabilityMinor, &minor},
      {cudaDevAttrMultiProcessorCount, &properties.multiprocessors},
      {cudaDevAttrMaxThreadsPerMultiProcessor, &properties.threads_per_multiprocessor},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &properties.shared_memory_per_multiprocessor},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &properties.shared_memory_per_block},
  };
  for (const auto& [attribute, value] : wanted) {
    const cudaError_t status = cleared(cudaDeviceGetAttribute(value, attribute, device));
    if (status != cudaSuccess) return status;
  }
  properties.compute_capability = major * 10 + minor;
  limit_shared_memory(properties);
  return cudaSuccess;
}

}  // namespace

void* driver_function(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cleared(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found));
  return entry;
}

cudaError_t device_properties(int device, const DeviceProperties** properties) {
  static DeviceProperties known[kMaxDevices];
  static std::once_flag asked[kMaxDevices];
  static cudaError_t answers[kMaxDevices];
  if (device < 0 || device >= kMaxDevices) return cudaErrorInvalidDevice;
  std::call_once(asked[device], [&] { answers[device] = read_properties(device, known[device]); });
  *properties = &known[device];
  return answers[device];
}

std::string describe(cudaError_t status, int device) {
  std::string text = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  int driver = 0, runtime = 0;
  cleared(cudaDriverGetVersion(&driver));
  cleared(cudaRuntimeGetVersion(&runtime));
  if (status == cudaErrorInsufficientDriver) {
    text += "; sluice is built with CUDA " + version_text(runtime) + ", the driver supports up to CUDA " +
            version_text(driver);
  }
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion) {
    DeviceProperties properties;
    read_properties(device, properties);
    text += "; the device has compute capability " + std::to_string(properties.compute_capability / 10) + "." +
            std::to_string(properties.compute_capability % 10) +
            ", sluice has code for " SLUICE_CUDA_ARCHS ", the driver supports up to CUDA " + version_text(driver);
  }
  return text;
}

}  // namespace sluice
