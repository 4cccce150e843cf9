#include "kernels/linking/linker.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "kernels/linking/compile.h"
#include "kernels/linking/disk_cache.h"
#include "kernels/linking/embedded.h"
#include "kernels/linking/libraries.h"
#include "kernels/linking/prelinked.h"
#include "kernels/linking/source.h"
#include "kernels/shared/common/device.h"

namespace sluice {
namespace {

constexpr unsigned long long kCacheLimit = 256ull << 20;
constexpr int kMaxDevices = 64;
constexpr std::size_t kMostUnlinked = 1024;

struct State {
  LinkTable table{LinkPolicy::kMostLinked, kMostUnlinked};
  DiskCache disk{DiskCache::default_directory(), kCacheLimit};
  std::atomic<LinkMode> mode;
  std::atomic<long long> linked_launches = 0, interpreted_launches = 0;
  std::atomic<long long> compiled = 0, read_from_disk = 0, read_from_library = 0;
  std::atomic<long long> failed = 0, postponed = 0, linked_bytes = 0, compile_microseconds = 0;
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

// Lets this thread load modules although another thread may be capturing a graph in CUDA's global mode.
class RelaxedCapture {
 public:
  RelaxedCapture() { cleared(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { cleared(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Errors in the code are permanent; others may succeed on retry.
LinkFault fault_of(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return LinkFault::none;
    case cudaErrorMemoryAllocation: return LinkFault::out_of_memory;
    case cudaErrorInvalidValue:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidSource:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorSymbolNotFound:
    case cudaErrorNotSupported: return LinkFault::failed;
    default: return LinkFault::postponed;
  }
}

cudaError_t load_cubin(const std::string& cubin, cudaLibrary_t& library, cudaKernel_t& kernel) {
  const RelaxedCapture relaxed;
  cudaError_t status = cleared(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  if (status != cudaSuccess) return status;
  status = cleared(cudaLibraryEnumerateKernels(&kernel, 1, library));
  if (status == cudaSuccess && kernel == nullptr) status = cudaErrorSymbolNotFound;
  if (status != cudaSuccess) cleared(cudaLibraryUnload(library));  // no kernel of it has been used
  return status;
}

void fail(LinkEntry& entry, LinkFault fault, std::string error) {
  State& all = state();
  if (fault != LinkFault::rejected) {
    ++(fault == LinkFault::failed ? all.failed : all.postponed);
    const std::lock_guard lock(all.error_mutex);
    all.last_error = error;
  }
  entry.fail(fault, std::move(error), LinkEntry::Clock::now());
}

void fail(LinkEntry& entry, cudaError_t status) {
  fail(entry, fault_of(status), std::string("the linked kernel does not load: ") + cudaGetErrorString(status));
}

// entry.cubin -> entry.kernel
cudaError_t load(LinkEntry& entry) {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  const cudaError_t status = load_cubin(entry.cubin, library, kernel);
  if (status != cudaSuccess) return status;
  state().linked_bytes += static_cast<long long>(entry.cubin.size());
  entry.library = library;
  entry.kernel = reinterpret_cast<const void*>(kernel);
  return status;
}

// For a kernel that no device has loaded, so that it was never used: entry.cubin is kept for another try.
void unload(LinkEntry& entry) {
  const RelaxedCapture relaxed;
  entry.kernel = nullptr;
  state().linked_bytes -= static_cast<long long>(entry.cubin.size());
  cleared(cudaLibraryUnload(static_cast<cudaLibrary_t>(std::exchange(entry.library, nullptr))));
}

// Sets entry.cubin, or a fault.
void compile(LinkEntry& entry, const LinkRequest& request, const std::string& source, int compute_capability) {
  State& all = state();
  const auto start = std::chrono::steady_clock::now();
  Compilation compilation = compile_chain(request, source, compute_capability);
  const auto taken = std::chrono::steady_clock::now() - start;
  all.compile_microseconds += std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
  if (compilation.fault != LinkFault::none) return fail(entry, compilation.fault, std::move(compilation.error));
  ++all.compiled;
  entry.cubin = std::move(compilation.cubin);
}

// Loads a kernel linked earlier. False if CUDA will never load it: then it counts as absent.
bool load_stored(LinkEntry& entry, std::string cubin, std::atomic<long long>& count) {
  entry.cubin = std::move(cubin);
  const cudaError_t status = load(entry);
  if (is_lasting(fault_of(status))) {
    entry.cubin = std::string();
    return false;
  }
  ++count;
  if (status != cudaSuccess) fail(entry, status);
  return true;
}

std::string_view prelinked_code(const LinkRequest& request, const std::string& source, int compute_capability) {
  return find_prelinked(prelinked_kernels(), prelinked_name(request, source, compute_capability));
}

bool is_prelinked(LinkEntry& entry, const LinkRequest& request, int compute_capability) {
  if (entry.prelinked == Prelinked::unknown) {
    const bool found = !prelinked_code(request, chain_source(request), compute_capability).empty();
    entry.prelinked = found ? Prelinked::yes : Prelinked::no;
  }
  return entry.prelinked == Prelinked::yes;
}

// Sets entry.kernel, or a fault. The entry's mutex is held. A cubin that CUDA does not load at once is kept for the
// next try.
void link(LinkEntry& entry, const LinkRequest& request, int compute_capability) {
  State& all = state();
  const std::string source = chain_source(request);
  if (entry.cubin.empty() && is_prelinked(entry, request, compute_capability)) {
    const std::string_view code = prelinked_code(request, source, compute_capability);
    if (load_stored(entry, std::string(code), all.read_from_library)) return;
    entry.prelinked = Prelinked::no;
  }
  if (entry.cubin.empty() && !link_libraries().unavailable.empty()) {
    return fail(entry, LinkFault::failed, link_libraries().unavailable);
  }
  const std::string key = compile_fingerprint(request, compute_capability) + source;
  const bool stores = !link_libraries().identity.empty();  // otherwise an entry could be another library's
  if (entry.cubin.empty() && stores) {
    std::optional<std::string> stored = all.disk.read(key);
    if (stored.has_value() && load_stored(entry, std::move(*stored), all.read_from_disk)) return;
  }
  if (entry.cubin.empty()) compile(entry, request, source, compute_capability);
  if (entry.cubin.empty()) return;
  if (const cudaError_t status = load(entry); status != cudaSuccess) return fail(entry, status);
  if (stores) all.disk.write(key, entry.cubin);
}

std::uint64_t bit_of(int device) { return std::uint64_t{1} << device % kMaxDevices; }

LinkOutcome interpreted(const char* reason) {
  ++state().interpreted_launches;
  return {nullptr, reason, LinkFault::none, {}};
}

LinkOutcome linked(const LinkEntry& entry) {
  ++state().linked_launches;
  return {entry.kernel, "", LinkFault::none, {}};
}

LinkOutcome not_linked(const LinkEntry& entry) {
  LinkOutcome outcome =
      interpreted(is_lasting(entry.fault) ? "linking failed" : "linking failed, and may succeed later");
  outcome.fault = entry.fault;
  outcome.error = entry.error;
  return outcome;
}

// CUDA loads a kernel into a device's context at its first use; that must not happen inside a capture. A library that
// did not fit into the first device's memory is reloaded the next time: its remains do not run.
void load_on_device(LinkEntry& entry, std::uint64_t device_bit) {
  const RelaxedCapture relaxed;
  cudaFuncAttributes attributes;
  const cudaError_t status = cleared(cudaFuncGetAttributes(&attributes, entry.kernel));
  if (status != cudaSuccess) {
    if (entry.loaded == 0) unload(entry);
    return fail(entry, status);
  }
  entry.cubin = std::string();
  entry.fault = LinkFault::none;
  entry.loaded |= device_bit;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cleared(cudaStreamIsCapturing(stream, &capture));
  return capture != cudaStreamCaptureStatusNone;
}

// Reserves one more kernel, and releases it if none was made.
class Reservation {
 public:
  Reservation(LinkTable& table, const LinkEntry& entry) : table_(table), entry_(entry), held_(table.reserve()) {}
  ~Reservation() {
    if (held_ && entry_.kernel == nullptr) table_.give_back();
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  bool held() const { return held_; }

 private:
  LinkTable& table_;
  const LinkEntry& entry_;
  bool held_;
};

// With the entry's mutex held: others may have linked it meanwhile, or failed to.
LinkOutcome link_now(LinkEntry& entry, const LinkRequest& request, const LinkContext& context) {
  State& all = state();
  const std::uint64_t device_bit = bit_of(context.device);
  if ((entry.loaded & device_bit) != 0) return linked(entry);
  if (is_lasting(entry.fault)) return not_linked(entry);
  if (entry.kernel == nullptr) {
    const Reservation place(all.table, entry);
    if (!place.held()) return interpreted("the process has reached its limit of linked kernels");
    link(entry, request, context.compute_capability);
    if (entry.kernel != nullptr) load_on_device(entry, device_bit);
  } else {
    load_on_device(entry, device_bit);
  }
  return (entry.loaded & device_bit) != 0 ? linked(entry) : not_linked(entry);
}

}  // namespace

LinkOutcome find_linked(const LinkRequest& request, const LinkContext& context) {
  State& all = state();
  const LinkMode mode = all.mode;
  if (mode == LinkMode::never) return interpreted("SLUICE_LINK=0 is set");
  LinkKey key = request.key();
  key.append(static_cast<char>(context.compute_capability));
  const std::shared_ptr<LinkEntry> entry = all.table.entry(key.view());
  if ((entry->loaded & bit_of(context.device)) != 0) return linked(*entry);
  if (is_lasting(entry->fault)) return not_linked(*entry);
  if (is_capturing(context.stream)) return interpreted("a CUDA graph is being captured");
  const bool prelinked = is_prelinked(*entry, request, context.compute_capability);
  const bool can_wait = !context.ahead && !request.has_cpp();
  const bool small = context.elements < LinkPolicy::kSmall;
  const bool postpones = mode == LinkMode::automatic && can_wait && small && !prelinked;
  if (postpones && entry->calls.fetch_add(1) < LinkPolicy::kCallsOfSmall) {
    return interpreted("the problem is small and was seen at most twice");
  }
  if (!prelinked && !link_libraries().unavailable.empty()) return interpreted(link_libraries().unavailable.c_str());
  if (!has_code(request.module, context.compute_capability))
    return interpreted("the library has no code for the device");
  if (can_wait && entry->rests(LinkEntry::Clock::now())) {
    return interpreted("linking failed less than a second ago, and may succeed later");
  }
  const std::lock_guard lock(entry->mutex);
  if (can_wait && entry->rests(LinkEntry::Clock::now())) return not_linked(*entry);
  return link_now(*entry, request, context);
}

LinkMode link_mode() { return state().mode; }
LinkMode set_link_mode(LinkMode mode) { return state().mode.exchange(mode); }

int set_link_limit(int kernels) { return state().table.set_limit(kernels); }

LinkStatistics link_statistics() {
  State& all = state();
  std::string cache_problem = all.disk.problem();  // reads the disk: not with the lock held
  const std::lock_guard lock(all.error_mutex);
  return {.linked_launches = all.linked_launches,
          .interpreted_launches = all.interpreted_launches,
          .compiled = all.compiled,
          .read_from_disk = all.read_from_disk,
          .read_from_library = all.read_from_library,
          .failed = all.failed,
          .postponed = all.postponed,
          .linked_kernels = all.table.linked(),
          .linked_bytes = all.linked_bytes,
          .linked_limit = all.table.limit(),
          .prelinked = count_prelinked(prelinked_kernels()),
          .compile_seconds = static_cast<double>(all.compile_microseconds) * 1e-6,
          .last_error = all.last_error,
          .cache_directory = all.disk.directory(),
          .cache_problem = std::move(cache_problem)};
}

}  // namespace sluice
