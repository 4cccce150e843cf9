// torch.ops.sluice._transfer_*: the engine that moves chunks (kernels/transfer), as numbers and texts. In _C it drives the
// host, in _C_cuda, as _transfer_cuda_*, a GPU. No argument is a tensor: python/sluice/stream keeps the memory alive.
// A call from Python releases the GIL, so one that waits holds nobody up.
#include <torch/csrc/stable/library.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/transfer/engine.h"
#include "ops/checks.h"

#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/transfer/cuda_driver.h"
#define SLUICE_TRANSFER "_transfer_cuda_"
#else
#include "kernels/transfer/host_driver.h"
#define SLUICE_TRANSFER "_transfer_"
#endif

namespace sluice {
namespace {

using namespace transfer;
using Ints = std::vector<int64_t>;

struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<Engine>> engines;
  int64_t last = 0;
};

Registry& registry() {
  static Registry* const one = new Registry;  // never destroyed: Python closes engines at its exit, while CUDA is there
  return *one;
}

std::shared_ptr<Engine> engine_of(int64_t handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.engines.find(handle);
  check(found != all.engines.end(), "_transfer: engine must be open, got ", handle);
  return found->second;
}

std::unique_ptr<Driver> make_driver([[maybe_unused]] int64_t device, int events) {
#ifdef SLUICE_CUDA_LIBRARY
  std::string error;
  std::unique_ptr<Driver> driver = make_cuda_driver(static_cast<int>(device), events, error);
  check(driver != nullptr, "stream_map: CUDA device ", device, " failed with ", error);
  return driver;
#else
  return make_host_driver(events);
#endif
}

int64_t open_engine(int64_t device, int64_t window, int64_t threads, int64_t ring_buffers, int64_t ring_buffer_bytes) {
  const EngineOptions options{static_cast<int>(window), static_cast<int>(threads), static_cast<int>(ring_buffers),
                              ring_buffer_bytes};
  auto engine = std::make_shared<Engine>(make_driver(device, options.events()), options);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.engines[++all.last] = std::move(engine);
  return all.last;
}

void close_engine(int64_t handle) {
  std::shared_ptr<Engine> engine = engine_of(handle);  // destroyed after the lock is given up
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.engines.erase(handle);
}

// For each copy: host, dense, route, mapping, item size, rank, sizes, strides of the host in bytes.
std::shared_ptr<Command> parse_command(int64_t set, const Ints& waits, const Ints& copies) {
  constexpr std::size_t kHead = 6;
  auto command = std::make_shared<Command>();
  command->set = static_cast<int>(set);
  command->waits.assign(waits.begin(), waits.end());
  for (std::size_t at = 0; at < copies.size();) {
    const int64_t* const head = copies.data() + at;
    check(copies.size() - at >= kHead, "_transfer: copies must have whole entries, got ", copies.size(), " numbers");
    const auto rank = static_cast<std::size_t>(head[5]);
    check(rank <= StridedCopy::kMaxRank, "_transfer: a copy must have at most ", StridedCopy::kMaxRank, " dimensions, got ",
          rank);
    check(copies.size() - at >= kHead + 2 * rank, "_transfer: copies must have whole entries, got ", copies.size(), " numbers");
    command->copies.push_back({make_copy(reinterpret_cast<char*>(head[0]), reinterpret_cast<char*>(head[1]), head[4],
                                         static_cast<int>(rank), head + kHead, head + kHead + rank),
                               static_cast<Route>(head[2]), static_cast<Mapping>(head[3])});
    at += kHead + 2 * rank;
  }
  return command;
}

void begin_run(int64_t engine, int64_t stream) { engine_of(engine)->begin(reinterpret_cast<void*>(stream)); }
void fetch_chunk(int64_t engine, int64_t set, const Ints& waits, const Ints& copies) {
  engine_of(engine)->fetch(parse_command(set, waits, copies));
}
void store_chunk(int64_t engine, int64_t set, const Ints& waits, const Ints& copies) {
  engine_of(engine)->store(parse_command(set, waits, copies));
}
bool acquire_chunk(int64_t engine, int64_t set, const Ints& waits, int64_t milliseconds) {
  return engine_of(engine)->acquire({waits.begin(), waits.end()}, static_cast<int>(set), static_cast<int>(milliseconds));
}
void commit_chunk(int64_t engine, int64_t set) { engine_of(engine)->commit(static_cast<int>(set)); }
int64_t landed_chunks(int64_t engine) { return engine_of(engine)->landed(); }
bool wait_landed(int64_t engine, int64_t count, int64_t milliseconds) {
  return engine_of(engine)->wait_landed(count, static_cast<int>(milliseconds));
}
bool drain_engine(int64_t engine, int64_t milliseconds) { return engine_of(engine)->drain(static_cast<int>(milliseconds)); }
void join_stream(int64_t engine, int64_t stream) { engine_of(engine)->join(reinterpret_cast<void*>(stream)); }
std::string error_of(int64_t engine) { return engine_of(engine)->error(); }
Ints counters_of(int64_t engine) { return engine_of(engine)->counters(); }
int64_t stream_of(int64_t engine, int64_t which) {
  return reinterpret_cast<int64_t>(engine_of(engine)->native_stream(static_cast<Stream>(which)));
}
void delay_stream(int64_t engine, int64_t which, int64_t microseconds) {
  engine_of(engine)->delay(static_cast<Stream>(which), static_cast<int>(microseconds));
}

Ints take_times(int64_t engine) {
  Ints numbers;
  for (const Times& times : engine_of(engine)->take_times()) numbers.insert(numbers.end(), times.begin(), times.end());
  return numbers;
}

// Copies dense memory by the engine's staging threads; nanoseconds.
int64_t time_memcpy(int64_t engine, int64_t target, int64_t source, int64_t bytes) {
  const std::shared_ptr<Engine> owner = engine_of(engine);
  const int64_t sizes[] = {bytes}, strides[] = {1};
  const StridedCopy copy = make_copy(reinterpret_cast<char*>(source), reinterpret_cast<char*>(target), 1, 1, sizes, strides);
  Batch batch;
  const auto start = std::chrono::steady_clock::now();
  owner->pool().submit(Direction::in, copy, 0, bytes, reinterpret_cast<char*>(target), Mapping::anonymous, batch);
  batch.wait();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
}

#ifdef SLUICE_CUDA_LIBRARY
std::string register_range(int64_t address, int64_t bytes, bool read_only) {
  return register_host(reinterpret_cast<void*>(address), bytes, read_only);
}
std::string unregister_range(int64_t address, int64_t bytes) { return unregister_host(reinterpret_cast<void*>(address), bytes); }
int64_t take_new_stream(int64_t device) {
  std::string error;
  void* const stream = take_stream(static_cast<int>(device), error);
  check(stream != nullptr, "thread_stream: CUDA device ", device, " failed with ", error);
  return reinterpret_cast<int64_t>(stream);
}
void give_back(int64_t device, int64_t stream) { give_stream_back(static_cast<int>(device), reinterpret_cast<void*>(stream)); }
std::string abilities_of(int64_t device) { return device_abilities(static_cast<int>(device)); }
#else
// The kind of mapping, and whether it may be written.
Ints mapping_info(int64_t address) {
  const MappingInfo info = mapping_of(reinterpret_cast<void*>(address));
  return {static_cast<int64_t>(info.kind), info.writable ? 1 : 0};
}
void advise_huge_pages(int64_t address, int64_t bytes) { advise_huge(reinterpret_cast<void*>(address), bytes); }
#endif

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def(SLUICE_TRANSFER "open(int device, int window, int threads, int ring_buffers, int ring_buffer_bytes) -> int");
  m.def(SLUICE_TRANSFER "close(int engine) -> ()");
  m.def(SLUICE_TRANSFER "begin(int engine, int stream) -> ()");
  m.def(SLUICE_TRANSFER "fetch(int engine, int set, int[] waits, int[] copies) -> ()");
  m.def(SLUICE_TRANSFER "store(int engine, int set, int[] waits, int[] copies) -> ()");
  m.def(SLUICE_TRANSFER "acquire(int engine, int set, int[] waits, int milliseconds) -> bool");
  m.def(SLUICE_TRANSFER "commit(int engine, int set) -> ()");
  m.def(SLUICE_TRANSFER "landed(int engine) -> int");
  m.def(SLUICE_TRANSFER "wait(int engine, int count, int milliseconds) -> bool");
  m.def(SLUICE_TRANSFER "drain(int engine, int milliseconds) -> bool");
  m.def(SLUICE_TRANSFER "join(int engine, int stream) -> ()");
  m.def(SLUICE_TRANSFER "error(int engine) -> str");
  m.def(SLUICE_TRANSFER "times(int engine) -> int[]");
  m.def(SLUICE_TRANSFER "counters(int engine) -> int[]");
  m.def(SLUICE_TRANSFER "stream(int engine, int which) -> int");
  m.def(SLUICE_TRANSFER "delay(int engine, int which, int microseconds) -> ()");
  m.def(SLUICE_TRANSFER "memcpy(int engine, int target, int source, int bytes) -> int");
#ifdef SLUICE_CUDA_LIBRARY
  m.def(SLUICE_TRANSFER "register(int address, int bytes, bool read_only) -> str");
  m.def(SLUICE_TRANSFER "unregister(int address, int bytes) -> str");
  m.def(SLUICE_TRANSFER "take_stream(int device) -> int");
  m.def(SLUICE_TRANSFER "give_stream_back(int device, int stream) -> ()");
  m.def(SLUICE_TRANSFER "abilities(int device) -> str");
#else
  m.def(SLUICE_TRANSFER "mapping(int address) -> int[]");
  m.def(SLUICE_TRANSFER "advise_huge(int address, int bytes) -> ()");
#endif
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl(SLUICE_TRANSFER "open", TORCH_BOX(&open_engine));
  m.impl(SLUICE_TRANSFER "close", TORCH_BOX(&close_engine));
  m.impl(SLUICE_TRANSFER "begin", TORCH_BOX(&begin_run));
  m.impl(SLUICE_TRANSFER "fetch", TORCH_BOX(&fetch_chunk));
  m.impl(SLUICE_TRANSFER "store", TORCH_BOX(&store_chunk));
  m.impl(SLUICE_TRANSFER "acquire", TORCH_BOX(&acquire_chunk));
  m.impl(SLUICE_TRANSFER "commit", TORCH_BOX(&commit_chunk));
  m.impl(SLUICE_TRANSFER "landed", TORCH_BOX(&landed_chunks));
  m.impl(SLUICE_TRANSFER "wait", TORCH_BOX(&wait_landed));
  m.impl(SLUICE_TRANSFER "drain", TORCH_BOX(&drain_engine));
  m.impl(SLUICE_TRANSFER "join", TORCH_BOX(&join_stream));
  m.impl(SLUICE_TRANSFER "error", TORCH_BOX(&error_of));
  m.impl(SLUICE_TRANSFER "times", TORCH_BOX(&take_times));
  m.impl(SLUICE_TRANSFER "counters", TORCH_BOX(&counters_of));
  m.impl(SLUICE_TRANSFER "stream", TORCH_BOX(&stream_of));
  m.impl(SLUICE_TRANSFER "delay", TORCH_BOX(&delay_stream));
  m.impl(SLUICE_TRANSFER "memcpy", TORCH_BOX(&time_memcpy));
#ifdef SLUICE_CUDA_LIBRARY
  m.impl(SLUICE_TRANSFER "register", TORCH_BOX(&register_range));
  m.impl(SLUICE_TRANSFER "unregister", TORCH_BOX(&unregister_range));
  m.impl(SLUICE_TRANSFER "take_stream", TORCH_BOX(&take_new_stream));
  m.impl(SLUICE_TRANSFER "give_stream_back", TORCH_BOX(&give_back));
  m.impl(SLUICE_TRANSFER "abilities", TORCH_BOX(&abilities_of));
#else
  m.impl(SLUICE_TRANSFER "mapping", TORCH_BOX(&mapping_info));
  m.impl(SLUICE_TRANSFER "advise_huge", TORCH_BOX(&advise_huge_pages));
#endif
}

}  // namespace sluice
