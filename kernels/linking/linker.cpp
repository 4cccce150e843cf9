#include "kernels/linking/linker.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "kernels/linking/compile.h"
#include "kernels/linking/disk_cache.h"
#include "kernels/linking/libraries.h"
#include "kernels/linking/source.h"

namespace sluice {
namespace {

constexpr unsigned long long kCacheLimit = 256ull << 20;
constexpr int kMaxDevices = 64;

// One chain in one kernel for one architecture. `kernel` is written once, before `loaded` says so for any device.
struct Entry {
  std::mutex mutex;
  std::atomic<std::uint64_t> loaded = 0;  // a bit a device
  std::atomic<bool> failed = false;
  std::atomic<int> calls = 0;
  cudaKernel_t kernel = nullptr;
  std::string error;
  bool rejected = false;
};

struct State {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries;  // entries stay where they are, and for good
  DiskCache disk{DiskCache::default_directory(), kCacheLimit};
  std::atomic<LinkMode> mode;
  std::atomic<long long> linked_launches = 0, interpreted_launches = 0, compiled = 0, read_from_disk = 0, failed = 0;
  std::atomic<long long> compile_microseconds = 0;
  std::mutex error_mutex;
  std::string last_error;

  State() {
    const char* const text = std::getenv("SLUICE_LINK");
    mode = text == nullptr                    ? LinkMode::automatic
           : std::strcmp(text, "0") == 0      ? LinkMode::never
           : std::strcmp(text, "always") == 0 ? LinkMode::always
                                              : LinkMode::automatic;
  }
};

State& state() {
  static State* const one = new State;  // never destroyed: CUDA may be gone when static objects are
  return *one;
}

Entry& entry_of(const std::string& key) {
  State& all = state();
  {
    const std::shared_lock lock(all.mutex);
    const auto found = all.entries.find(key);
    if (found != all.entries.end()) return *found->second;
  }
  const std::unique_lock lock(all.mutex);
  std::unique_ptr<Entry>& entry = all.entries[key];
  if (entry == nullptr) entry = std::make_unique<Entry>();
  return *entry;
}

// Lets this thread load modules although another one may be capturing a graph in CUDA's global mode.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

std::string load_cubin(const std::string& cubin, cudaKernel_t& kernel) {
  const RelaxedCapture relaxed;
  cudaLibrary_t library = nullptr;
  cudaError_t status = cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (status == cudaSuccess) status = cudaLibraryEnumerateKernels(&kernel, 1, library);
  if (status == cudaSuccess && kernel != nullptr) return {};
  cudaGetLastError();
  return std::string("the linked kernel does not load: ") + cudaGetErrorString(status);
}

void fail(Entry& entry, std::string error, bool rejected) {
  State& all = state();
  if (!rejected) {
    ++all.failed;
    const std::lock_guard lock(all.error_mutex);
    all.last_error = error;
  }
  entry.error = std::move(error);
  entry.rejected = rejected;
  entry.failed = true;
}

// Fills in entry.kernel, or fails for good. The entry's mutex is held.
void link(Entry& entry, const LinkRequest& request, int compute_capability) {
  State& all = state();
  const std::string source = chain_source(request);
  const std::string key = compile_fingerprint(request, compute_capability) + source;
  if (const std::optional<std::string> cubin = all.disk.read(key)) {
    if (load_cubin(*cubin, entry.kernel).empty()) {
      ++all.read_from_disk;
      return;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const Compilation compilation = compile_chain(request, source, compute_capability);
  const auto taken = std::chrono::steady_clock::now() - start;
  all.compile_microseconds += std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
  if (!compilation.error.empty()) return fail(entry, compilation.error, compilation.rejected);
  const std::string error = load_cubin(compilation.cubin, entry.kernel);
  if (!error.empty()) return fail(entry, error, false);
  ++all.compiled;
  all.disk.write(key, compilation.cubin);
}

LinkOutcome interpreted(const char* reason) {
  ++state().interpreted_launches;
  return {nullptr, reason, {}, false};
}

LinkOutcome linked(const Entry& entry) {
  ++state().linked_launches;
  return {reinterpret_cast<const void*>(entry.kernel), "", {}, false};
}

LinkOutcome failed(const Entry& entry) {
  LinkOutcome outcome = interpreted("linking failed");
  outcome.error = entry.error;
  outcome.rejected = entry.rejected;
  return outcome;
}

// CUDA loads a kernel into a device's context at its first use; that must not happen inside a capture.
bool load_on_device(Entry& entry, int device) {
  const RelaxedCapture relaxed;
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(entry.kernel)) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  entry.loaded |= std::uint64_t{1} << device;
  return true;
}

}  // namespace

LinkOutcome find_linked(const LinkRequest& request, const LinkContext& context) {
  State& all = state();
  const LinkMode mode = all.mode;
  if (mode == LinkMode::never) return interpreted("SLUICE_LINK=0 is set");
  std::string key = request.key();
  key += static_cast<char>(context.compute_capability);
  Entry& entry = entry_of(key);
  const std::uint64_t bit = std::uint64_t{1} << context.device % kMaxDevices;
  if ((entry.loaded & bit) != 0) return linked(entry);
  if (entry.failed) return failed(entry);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(context.stream, &capture) != cudaSuccess) cudaGetLastError();
  if (capture != cudaStreamCaptureStatusNone) return interpreted("a CUDA graph is being captured");
  const bool small = context.elements < LinkPolicy::kSmall;
  if (mode == LinkMode::automatic && !context.ahead && !request.has_cpp() && small &&
      entry.calls.fetch_add(1) < LinkPolicy::kCallsOfSmall) {
    return interpreted("the problem is small and was seen no more than twice");
  }
  if (!link_libraries().unavailable.empty()) return interpreted(link_libraries().unavailable.c_str());
  if (context.compute_capability < 80) return interpreted("linked kernels need compute capability 8.0");

  const std::lock_guard lock(entry.mutex);
  if (entry.kernel == nullptr && !entry.failed) link(entry, request, context.compute_capability);
  if (!entry.failed && !load_on_device(entry, context.device % kMaxDevices))
    fail(entry, "the linked kernel does not load on the device", false);
  return entry.failed ? failed(entry) : linked(entry);
}

LinkMode link_mode() { return state().mode; }
LinkMode set_link_mode(LinkMode mode) { return state().mode.exchange(mode); }

LinkStatistics link_statistics() {
  State& all = state();
  const std::lock_guard lock(all.error_mutex);
  return {all.linked_launches, all.interpreted_launches,
          all.compiled,        all.read_from_disk,
          all.failed,          static_cast<double>(all.compile_microseconds) * 1e-6,
          all.last_error,      all.disk.directory()};
}

}  // namespace sluice
