// Pins memory that others own: a registry of ranges with user counts, because CUDA refuses to pin a page twice.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "kernels/transfer/cuda_driver.h"

namespace sluice::transfer {
namespace {

struct Range {
  std::uintptr_t begin, end;  // whole pages
  void* address;              // as it was given to CUDA
  int users;
};

std::mutex mutex;
// Ranges by their ends; never destroyed, because CUDA may be gone before static objects.
std::map<std::uintptr_t, Range>& ranges() {
  static auto* const all = new std::map<std::uintptr_t, Range>;
  return *all;
}

Range pages_of(void* address, std::int64_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto end = begin + static_cast<std::uintptr_t>(bytes);
  return {begin / page * page, (end + page - 1) / page * page, address, 1};
}

// The registered range that covers `wanted`, or null.
Range* covering(const Range& wanted) {
  const auto found = ranges().lower_bound(wanted.end);
  return found != ranges().end() && found->second.begin <= wanted.begin ? &found->second : nullptr;
}

// Whether the device has a context. The query creates none, which would take hundreds of MiB.
bool is_used(int device) {
  static const auto state = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const char* const name = "cuDevicePrimaryCtxGetState";
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess) cudaGetLastError();
    return reinterpret_cast<int (*)(int, unsigned*, int*)>(entry);
  }();
  unsigned flags = 0;
  int active = 1;
  return state == nullptr || state(device, &flags, &active) != 0 || active != 0;
}

// Memory is pinned for all devices, so copies of any of them may use it.
void wait_for_all_devices() {
  int former = 0, count = 0;
  if (cudaGetDevice(&former) != cudaSuccess || cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int device = 0; device < count; ++device) {
    if (is_used(device) && cudaSetDevice(device) == cudaSuccess) cudaDeviceSynchronize();
  }
  if (count > 0) cudaSetDevice(former);
  cudaGetLastError();
}

}  // namespace

std::string register_host(void* address, std::int64_t bytes, bool read_only) {
  const std::lock_guard lock(mutex);
  const Range wanted = pages_of(address, bytes);
  if (Range* const known = covering(wanted)) {
    ++known->users;
    return {};
  }
  const unsigned flags = cudaHostRegisterPortable | (read_only ? cudaHostRegisterReadOnly : 0u);
  const cudaError_t status = cudaHostRegister(address, static_cast<std::size_t>(bytes), flags);
  if (status != cudaSuccess) {
    cudaGetLastError();  // not sticky, but torch's next call would report it
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  }
  ranges().emplace(wanted.end, wanted);
  return {};
}

std::string unregister_host(void* address, std::int64_t bytes) {
  wait_for_all_devices();
  const std::lock_guard lock(mutex);
  Range* const known = covering(pages_of(address, bytes));
  if (known == nullptr) return "the range is not registered";
  if (--known->users > 0) return {};
  const cudaError_t status = cudaHostUnregister(known->address);
  ranges().erase(known->end);
  if (status == cudaSuccess) return {};
  cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
}

}  // namespace sluice::transfer
