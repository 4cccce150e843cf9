// torch.ops.sluice._transfer_*: the engine that moves chunks (kernels/transfer). In _C it drives the host (ops/cpu); in
// _C_cuda, as _transfer_cuda_*, a GPU (ops/cuda). Arguments are numbers, not tensors: python/sluice/stream keeps the
// memory alive. A call from Python releases the GIL, so a waiting call blocks no other thread.
#include "ops/transfer.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/shared/common/per_process.h"
#include "kernels/transfer/chunk_loop.h"
#include "kernels/transfer/engine.h"
#include "ops/common/checks.h"
#include "ops/common/device.h"
#include "ops/common/streamed_op.h"

namespace sluice {
namespace {

using namespace transfer;
using Ints = std::vector<int64_t>;

struct Opened {
  int device;
  std::shared_ptr<Engine> engine;
};

// An engine whose device is current. The last user of a closed engine destroys it.
class CurrentEngine {
 public:
  explicit CurrentEngine(Opened opened) : guard_(opened.device), engine_(std::move(opened.engine)) {}
  Engine* operator->() const { return engine_.get(); }
  Engine& operator*() const { return *engine_; }

 private:
  DeviceGuard guard_;
  std::shared_ptr<Engine> engine_;  // last: destroyed while its device is current
};

constinit int64_t largest_handle = 0;  // under the registry's mutex; a child's handles exceed all inherited handles

// Never destroyed: Python closes engines at its exit, before CUDA is gone.
struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, Opened> engines;
  const int64_t inherited = largest_handle;  // handles up to here are another process's
};

Opened opened(int64_t handle) {
  Registry& all = PerProcess<Registry>::get();
  check(handle > all.inherited, "_transfer: engine must be used by the process that made it, got a fork of it");
  const std::lock_guard lock(all.mutex);
  const auto found = all.engines.find(handle);
  check(found != all.engines.end(), "_transfer: engine must be open, got ", handle);
  return found->second;
}

CurrentEngine engine_of(int64_t handle) { return CurrentEngine(opened(handle)); }

// `handle` must be new: Python counts them.
void open_engine(int64_t handle, int64_t device, int64_t event_sets, int64_t threads, int64_t ring_buffers,
                 int64_t ring_buffer_bytes) {
  const EngineOptions options{static_cast<int>(event_sets), static_cast<int>(threads), static_cast<int>(ring_buffers),
                              ring_buffer_bytes};
  const DeviceGuard guard(static_cast<int>(device));
  std::shared_ptr<Engine> engine;
  try {
    engine = std::make_shared<Engine>(make_driver(static_cast<int>(device), options), options);
  } catch (const std::system_error& error) {
    check(false, "Streamer: the system must be able to start a thread, got ", error.what());
  }
  Registry& all = PerProcess<Registry>::get();
  const std::lock_guard lock(all.mutex);
  largest_handle = std::max(largest_handle, handle);
  all.engines[handle] = {static_cast<int>(device), std::move(engine)};
}

// Does nothing if the engine is not open.
void close_engine(int64_t handle) {
  Opened closed{-1, nullptr};
  {
    Registry& all = PerProcess<Registry>::get();
    const std::lock_guard lock(all.mutex);
    const auto found = all.engines.find(handle);
    if (found == all.engines.end()) return;
    closed = std::move(found->second);
    all.engines.erase(found);
  }
  CurrentEngine(std::move(closed));
}

// Reads the numbers that Python sends, in order.
class CommandReader {
 public:
  explicit CommandReader(const Ints& numbers) : numbers_(numbers) {}

  bool empty() const { return at_ == numbers_.size(); }
  const int64_t* take(int64_t count) {
    check(count >= 0 && static_cast<std::size_t>(count) <= numbers_.size() - at_,
          "_transfer: commands must be whole, got ", numbers_.size(), " numbers");
    at_ += static_cast<std::size_t>(count);
    return numbers_.data() + at_ - count;
  }

 private:
  const Ints& numbers_;
  std::size_t at_ = 0;
};

// host, packed, route, mapping, item size, rank, sizes, strides of the host in bytes.
ChunkCopy take_copy(CommandReader& reader) {
  const int64_t* const head = reader.take(6);
  const int64_t rank = head[5];
  check(rank >= 0 && rank <= StridedCopy::kMaxRank, "_transfer: a copy must have at most ", StridedCopy::kMaxRank,
        " dimensions, got ", rank);
  const int64_t* const sizes = reader.take(2 * rank);
  return {make_copy(reinterpret_cast<char*>(head[0]), reinterpret_cast<char*>(head[1]), head[4], static_cast<int>(rank),
                    sizes, sizes + rank),
          static_cast<transfer::Route>(head[2]), static_cast<Mapping>(head[3])};
}

enum Kind : int64_t { kFetch, kStore, kCommit };

// kind, set, number of waits, number of copies, waits, copies.
std::pair<Kind, std::shared_ptr<Command>> take_command(CommandReader& reader) {
  const int64_t* const head = reader.take(4);
  check(head[0] >= kFetch && head[0] <= kCommit, "_transfer: a command must be a fetch, a store or a commit, got ",
        head[0]);
  auto command = std::make_shared<Command>();
  command->set = static_cast<int>(head[1]);
  const int64_t* const waits = reader.take(head[2]);
  command->waits.assign(waits, waits + head[2]);
  for (int64_t i = 0; i < head[3]; ++i) command->copies.push_back(take_copy(reader));
  return {static_cast<Kind>(head[0]), std::move(command)};
}

// A call submits all commands since the last call: a call from Python costs more than a command. All are parsed before
// the first is issued, so a refused command leaves none in flight.
void submit(Engine& engine, const Ints& numbers) {
  std::vector<std::pair<Kind, std::shared_ptr<Command>>> commands;
  for (CommandReader reader(numbers); !reader.empty();) commands.push_back(take_command(reader));
  for (auto& [kind, command] : commands) {
    switch (kind) {
      case kFetch: engine.fetch(std::move(command)); break;
      case kStore: engine.store(std::move(command)); break;
      case kCommit: engine.commit(command->set); break;
    }
  }
}

// step, an address for each slot.
Place take_place(CommandReader& reader, int depth) {
  Place place;
  place.step = *reader.take(1);
  const int64_t* const slots = reader.take(depth);
  for (int slot = 0; slot < depth; ++slot) place.slots.push_back(reinterpret_cast<char*>(slots[slot]));
  return place;
}

// step, place, copy.
ChunkEnd take_end(CommandReader& reader, int depth) {
  ChunkEnd end;
  end.step = *reader.take(1);
  end.place = take_place(reader, depth);
  end.first = take_copy(reader);
  return end;
}

// target, source, span, rows, pitch of the target, pitch of the source.
ChunkMove take_move(CommandReader& reader, int depth) {
  Place target = take_place(reader, depth), source = take_place(reader, depth);
  const int64_t* const numbers = reader.take(4);
  return {std::move(target), std::move(source), numbers[0], numbers[1], numbers[2], numbers[3]};
}

// sequence, first, count, fetched, stored; depth, event sets, limit, group, the mark that frees or -1, numbers of
// inputs, outputs, moves before and after the function; these.
ChunkLoop take_loop(CommandReader& reader) {
  const int64_t* const head = reader.take(14);
  ChunkLoop loop;
  loop.sequence = head[0];
  loop.first = head[1];
  loop.count = head[2];
  loop.fetched = head[3];
  loop.stored = head[4];
  loop.depth = static_cast<int>(head[5]);
  loop.event_sets = static_cast<int>(head[6]);
  loop.limit = static_cast<int>(head[7]);
  loop.group = static_cast<int>(head[8]);
  loop.freed = head[9] < 0 ? std::nullopt : std::optional(static_cast<Mark>(head[9]));
  for (int64_t i = 0; i < head[10]; ++i) loop.in.push_back(take_end(reader, loop.depth));
  for (int64_t i = 0; i < head[11]; ++i) loop.out.push_back(take_end(reader, loop.depth));
  for (int64_t i = 0; i < head[12]; ++i) loop.before.push_back(take_move(reader, loop.depth));
  for (int64_t i = 0; i < head[13]; ++i) loop.after.push_back(take_move(reader, loop.depth));
  return loop;
}

// A loop that does not end is continued by another call, after Python has looked for an interrupt.
constexpr int kLoopMilliseconds = 20;

// The loop of the identity computes nothing.
std::string transfer_chunks(int64_t engine, const Ints& loop) {
  return run_chunk_loop(engine, loop, [](int) {});
}

void begin_run(int64_t engine, int64_t stream) { engine_of(engine)->begin(reinterpret_cast<void*>(stream)); }
void submit_commands(int64_t engine, const Ints& commands) { submit(*engine_of(engine), commands); }
// What acquire and wait return instead of the number of landed chunks.
constexpr int64_t kNotInTime = -1, kFailed = -2;
int64_t acquire_chunk(int64_t engine, const Ints& commands, int64_t set, const Ints& waits, int64_t milliseconds) {
  const CurrentEngine owner = engine_of(engine);
  submit(*owner, commands);
  if (!owner->acquire({waits.begin(), waits.end()}, static_cast<int>(set), static_cast<int>(milliseconds))) {
    return kNotInTime;
  }
  owner->poll();
  return owner->has_failed() ? kFailed : owner->landed();
}
int64_t landed_chunks(int64_t engine) {
  const CurrentEngine owner = engine_of(engine);
  owner->poll();
  return owner->landed();
}
int64_t wait_landed(int64_t engine, const Ints& commands, int64_t count, int64_t milliseconds) {
  const CurrentEngine owner = engine_of(engine);
  submit(*owner, commands);
  if (!owner->wait_landed(count, static_cast<int>(milliseconds))) return kNotInTime;
  return owner->has_failed() ? kFailed : owner->landed();
}
bool wait_read(int64_t engine, int64_t set, bool directly, int64_t milliseconds) {
  return engine_of(engine)->wait_read(static_cast<int>(set), directly, static_cast<int>(milliseconds));
}
bool drain_engine(int64_t engine, int64_t milliseconds) {
  return engine_of(engine)->drain(static_cast<int>(milliseconds));
}
void join_stream(int64_t engine, int64_t stream) { engine_of(engine)->join(reinterpret_cast<void*>(stream)); }
std::string error_of(int64_t engine) { return engine_of(engine)->error(); }
int64_t stream_of(int64_t engine, int64_t which) {
  return reinterpret_cast<int64_t>(engine_of(engine)->native_stream(static_cast<Stream>(which)));
}
void delay_stream(int64_t engine, int64_t which, int64_t microseconds) {
  engine_of(engine)->delay(static_cast<Stream>(which), static_cast<int>(microseconds));
}
void disturb_engine(int64_t engine, int64_t seed, int64_t microseconds) {
  engine_of(engine)->disturb(static_cast<unsigned>(seed), static_cast<int>(microseconds));
}

// The counters, then the times.
Ints take_numbers(int64_t engine) {
  const CurrentEngine owner = engine_of(engine);
  Ints numbers = owner->counters();
  for (const Times& times : owner->take_times()) numbers.insert(numbers.end(), times.begin(), times.end());
  return numbers;
}

// Nanoseconds of a contiguous copy by the engine's staging threads.
int64_t time_memcpy(int64_t engine, int64_t target, int64_t source, int64_t bytes) {
  const CurrentEngine owner = engine_of(engine);
  const int64_t sizes[] = {bytes}, strides[] = {1};
  const StridedCopy copy =
      make_copy(reinterpret_cast<char*>(source), reinterpret_cast<char*>(target), 1, 1, sizes, strides);
  Batch batch;
  const auto start = std::chrono::steady_clock::now();
  owner->pool().submit(Direction::in, copy, 0, bytes, reinterpret_cast<char*>(target), Mapping::anonymous, batch);
  owner->pool().wait(batch);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string run_chunk_loop(int64_t engine, const std::vector<int64_t>& numbers,
                           const std::function<void(int slot)>& compute) {
  const CurrentEngine owner = engine_of(engine);
  CommandReader reader(numbers);
  ChunkLoop loop = take_loop(reader);
  loop.run(*owner, compute, kLoopMilliseconds);
  return std::to_string(loop.fetched) + " " + std::to_string(loop.stored);
}

void define_transfer(Library& m, const std::string& prefix) {
  const auto define = [&](const char* schema) { m.def((prefix + schema).c_str()); };
  define("open(int engine, int device, int event_sets, int threads, int ring_buffers, int ring_buffer_bytes) -> ()");
  define("close(int engine) -> ()");
  define("begin(int engine, int stream) -> ()");
  define("submit(int engine, int[] commands) -> ()");
  define("chunks(int engine, int[] loop) -> str");
  define("acquire(int engine, int[] commands, int set, int[] waits, int milliseconds) -> int");
  define("landed(int engine) -> int");
  define("wait(int engine, int[] commands, int count, int milliseconds) -> int");
  define("wait_read(int engine, int set, bool directly, int milliseconds) -> bool");
  define("drain(int engine, int milliseconds) -> bool");
  define("join(int engine, int stream) -> ()");
  define("error(int engine) -> str");
  define("numbers(int engine) -> int[]");
  define("stream(int engine, int which) -> int");
  define("delay(int engine, int which, int microseconds) -> ()");
  define("disturb(int engine, int seed, int microseconds) -> ()");
  define("memcpy(int engine, int target, int source, int bytes) -> int");
}

void implement_transfer(Library& m, const std::string& prefix) {
  const auto implement = [&](const char* name, auto function) { m.impl((prefix + name).c_str(), function); };
  implement("open", TORCH_BOX(&open_engine));
  implement("close", TORCH_BOX(&close_engine));
  implement("begin", TORCH_BOX(&begin_run));
  implement("submit", TORCH_BOX(&submit_commands));
  implement("chunks", TORCH_BOX(&transfer_chunks));
  implement("acquire", TORCH_BOX(&acquire_chunk));
  implement("landed", TORCH_BOX(&landed_chunks));
  implement("wait", TORCH_BOX(&wait_landed));
  implement("wait_read", TORCH_BOX(&wait_read));
  implement("drain", TORCH_BOX(&drain_engine));
  implement("join", TORCH_BOX(&join_stream));
  implement("error", TORCH_BOX(&error_of));
  implement("numbers", TORCH_BOX(&take_numbers));
  implement("stream", TORCH_BOX(&stream_of));
  implement("delay", TORCH_BOX(&delay_stream));
  implement("disturb", TORCH_BOX(&disturb_engine));
  implement("memcpy", TORCH_BOX(&time_memcpy));
}

}  // namespace sluice
