// Pins memory that others own: a registry of ranges with user counts, because CUDA refuses to pin a page twice.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "kernels/shared/common/device.h"
#include "kernels/shared/common/per_process.h"
#include "kernels/transfer/cuda_driver.h"

namespace sluice::transfer {
namespace {

struct Range {
  std::uintptr_t begin, end;  // whole pages
  void* address;              // address as it was given to CUDA
  int users;
};

// A child of fork() has pinned nothing.
struct Registered {
  std::mutex mutex;
  std::map<std::uintptr_t, Range> by_end;

  // The range that covers `wanted`, or null.
  Range* covering(const Range& wanted) {
    const auto found = by_end.lower_bound(wanted.end);
    return found != by_end.end() && found->second.begin <= wanted.begin ? &found->second : nullptr;
  }
};

Range pages_of(void* address, std::int64_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto end = begin + static_cast<std::uintptr_t>(bytes);
  return {begin / page * page, (end + page - 1) / page * page, address, 1};
}

// Whether the device has a context. The query creates none, which would take hundreds of MiB.
bool is_used(int device) {
  static const auto state =
      reinterpret_cast<int (*)(int, unsigned*, int*)>(driver_function("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = 1;
  return state == nullptr || state(device, &flags, &active) != 0 || active != 0;
}

int device_count() {
  int count = 0;
  return cleared(cudaGetDeviceCount(&count)) == cudaSuccess ? count : 0;
}

// Memory is pinned for all devices, so copies of any of them may use it. The current device must be a used one.
void wait_for_all_devices() {
  int former = 0;
  if (cleared(cudaGetDevice(&former)) != cudaSuccess) return;
  for (int device = 0, count = device_count(); device < count; ++device) {
    if (is_used(device) && cudaSetDevice(device) == cudaSuccess) cudaDeviceSynchronize();
  }
  cudaSetDevice(former);
  cudaGetLastError();
}

}  // namespace

int used_device(int preferred) {
  if (is_used(preferred)) return preferred;
  for (int device = 0, count = device_count(); device < count; ++device) {
    if (is_used(device)) return device;
  }
  return preferred;
}

std::string register_host(void* address, std::int64_t bytes, bool read_only) {
  Registered& registered = PerProcess<Registered>::get();
  const std::lock_guard lock(registered.mutex);
  const Range wanted = pages_of(address, bytes);
  if (Range* const known = registered.covering(wanted)) {
    ++known->users;
    return {};
  }
  const unsigned flags = cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0u);
  const cudaError_t status = cudaHostRegister(address, static_cast<std::size_t>(bytes), flags);
  if (status != cudaSuccess) {
    cudaGetLastError();  // not sticky, but torch's next call would report it
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  }
  registered.by_end.emplace(wanted.end, wanted);
  return {};
}

std::string unregister_host(void* address, std::int64_t bytes) {
  wait_for_all_devices();
  Registered& registered = PerProcess<Registered>::get();
  const std::lock_guard lock(registered.mutex);
  Range* const known = registered.covering(pages_of(address, bytes));
  if (known == nullptr) return "the range is not registered";
  if (--known->users > 0) return {};
  const cudaError_t status = cudaHostUnregister(known->address);
  registered.by_end.erase(known->end);
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
}

}  // namespace sluice::transfer
