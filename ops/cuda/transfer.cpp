// torch.ops.sluice._transfer_cuda_*: the engine's ops for a GPU (ops/transfer.cpp), streams and pinned memory.
#include "ops/transfer.h"

#include <torch/csrc/stable/accelerator.h>

#include "kernels/transfer/cuda_driver.h"
#include "ops/common/checks.h"
#include "ops/common/device.h"

namespace sluice {
namespace {

using namespace transfer;

std::string register_range(int64_t address, int64_t bytes, bool read_only) {
  const DeviceGuard guard(used_device(torch::stable::accelerator::getCurrentDeviceIndex()));
  return register_host(reinterpret_cast<void*>(address), bytes, read_only);
}
std::string unregister_range(int64_t address, int64_t bytes) {
  const DeviceGuard guard(used_device(torch::stable::accelerator::getCurrentDeviceIndex()));
  return unregister_host(reinterpret_cast<void*>(address), bytes);
}
int64_t take_new_stream(int64_t device) {
  const DeviceGuard guard(static_cast<int>(device));
  std::string error;
  void* const stream = take_stream(static_cast<int>(device), error);
  check(stream != nullptr, "thread_stream: CUDA device ", device, " failed with ", error);
  return reinterpret_cast<int64_t>(stream);
}
void give_back(int64_t device, int64_t stream) {
  give_stream_back(static_cast<int>(device), reinterpret_cast<void*>(stream));
}
std::string abilities_of(int64_t device) { return device_abilities(static_cast<int>(device)); }

}  // namespace

std::unique_ptr<Driver> make_driver(int device, const EngineOptions& options) {
  std::string error;
  std::unique_ptr<Driver> driver = make_cuda_driver(device, options.events(), options.timed_events(), error);
  check(driver != nullptr, "stream_map: CUDA device ", device, " failed with ", error);
  return driver;
}

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  define_transfer(m, "_transfer_cuda_");
  m.def("_transfer_cuda_register(int address, int bytes, bool read_only) -> str");
  m.def("_transfer_cuda_unregister(int address, int bytes) -> str");
  m.def("_transfer_cuda_take_stream(int device) -> int");
  m.def("_transfer_cuda_give_stream_back(int device, int stream) -> ()");
  m.def("_transfer_cuda_abilities(int device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  implement_transfer(m, "_transfer_cuda_");
  m.impl("_transfer_cuda_register", TORCH_BOX(&register_range));
  m.impl("_transfer_cuda_unregister", TORCH_BOX(&unregister_range));
  m.impl("_transfer_cuda_take_stream", TORCH_BOX(&take_new_stream));
  m.impl("_transfer_cuda_give_stream_back", TORCH_BOX(&give_back));
  m.impl("_transfer_cuda_abilities", TORCH_BOX(&abilities_of));
}

}  // namespace sluice
