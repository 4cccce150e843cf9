// The loop of equal chunks, on a simulated device whose streams advance in random order.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/transfer/chunk_loop.h"
#include "tests/cpp/check.h"

namespace sluice::transfer::chunk_loop_tests {
namespace {

using Bytes = std::vector<char>;

// A device of three streams whose steps are taken in random order, whenever someone looks at an event. A stream does
// not wait for anything if it is `broken`.
class SimulatedDriver final : public Driver {
 public:
  SimulatedDriver(int events, unsigned seed, int broken)
      : random_(seed), recorded_(static_cast<std::size_t>(events)), completed_(recorded_), broken_(broken) {}

  bool shares_memory() const override { return false; }
  void* native_stream(Stream) const override { return nullptr; }

  void enqueue(Stream stream, std::function<bool()> step) {
    const std::lock_guard lock(mutex_);
    streams_[static_cast<int>(stream)].push_back(std::move(step));
  }
  bool record(Stream stream, int event) override {
    const std::lock_guard lock(mutex_);
    const int number = ++recorded_[static_cast<std::size_t>(event)];
    streams_[static_cast<int>(stream)].push_back([this, event, number] {
      int& completed = completed_[static_cast<std::size_t>(event)];
      completed = std::max(completed, number);
      return true;
    });
    return true;
  }
  bool wait(Stream stream, int event) override {
    if (static_cast<int>(stream) == broken_) return true;
    const std::lock_guard lock(mutex_);
    const int number = recorded_[static_cast<std::size_t>(event)];
    streams_[static_cast<int>(stream)].push_back(
        [this, event, number] { return completed_[static_cast<std::size_t>(event)] >= number; });
    return true;
  }
  bool record_foreign(void*, int event) override { return record(Stream::compute, event); }
  bool make_wait(void*, int event) override { return synchronize(event); }
  bool complete(int event) override {
    const std::lock_guard lock(mutex_);
    take_a_step();
    return is_complete(event);
  }
  bool synchronize(int event) override {
    for (;;) {
      const std::lock_guard lock(mutex_);
      if (is_complete(event)) return !is_lost_;
      take_a_step();
    }
  }
  double seconds(int, int) override { return 0; }
  bool copy(Stream stream, const DeviceCopy& copy) override {
    if (copies_left_ == 0) return false;
    --copies_left_;
    enqueue(stream, [copy] {
      for (std::int64_t row = 0; row < copy.rows; ++row) {
        std::memcpy(copy.target + row * copy.target_pitch, copy.source + row * copy.source_pitch,
                    static_cast<std::size_t>(copy.span));
      }
      return true;
    });
    return true;
  }
  bool delay(Stream, int) override { return true; }
  char* allocate_pinned(std::int64_t bytes) override { return new char[static_cast<std::size_t>(bytes)]; }
  void free_pinned(char* memory, std::int64_t) override { delete[] memory; }
  std::string error() const override {
    if (is_lost_) return "the device is lost";
    return copies_left_ == 0 ? "no more copies" : "";
  }
  void fail_after(int copies) { copies_left_ = copies; }
  // As after an error of a kernel: events are complete, and waiting for one tells of the error.
  void lose() { is_lost_ = true; }

 private:
  bool is_complete(int event) const {
    return completed_[static_cast<std::size_t>(event)] >= recorded_[static_cast<std::size_t>(event)];
  }
  void take_a_step() {
    auto& stream = streams_[random_() % kStreams];
    if (!stream.empty() && stream.front()()) stream.pop_front();
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::deque<std::function<bool()>> streams_[kStreams];
  std::vector<int> recorded_, completed_;
  const int broken_;
  std::atomic<int> copies_left_ = 1 << 30;
  std::atomic<bool> is_lost_ = false;
};

constexpr int kNothing = -1;
constexpr int kRows = 3, kColumns = 500;  // of a chunk; rows are strided on the host

// Chunks of a host tensor through the loop; compute adds one. Whether all results are right.
bool streams(Route in, Route out, int depth, int limit, bool through, unsigned seed, int broken = kNothing) {
  std::mt19937 random(seed);
  const std::int64_t chunks = 3 + static_cast<std::int64_t>(random() % 20), pitch = kColumns + 7;
  EngineOptions options;
  options.event_sets = 2 * depth;
  options.threads = 2;
  options.ring_buffers = 3;
  options.ring_buffer_bytes = 4096;
  auto made = std::make_unique<SimulatedDriver>(options.events(), seed, broken);
  SimulatedDriver& driver = *made;
  Engine engine(std::move(made), options);
  Bytes source(static_cast<std::size_t>(chunks * kRows * pitch));
  for (char& byte : source) byte = static_cast<char>(random());
  Bytes result(source.size(), 'x');
  const auto slots = static_cast<std::size_t>(depth);
  const std::size_t each = std::size_t{kRows} * kColumns;
  std::vector<Bytes> inside(slots, Bytes(each)), outside(slots, Bytes(each));

  const std::int64_t sizes[] = {kRows, kColumns}, strides[] = {pitch, 1};
  const auto end = [&](Bytes& host, std::vector<Bytes>& slot, Route route) {
    ChunkEnd made{{make_copy(host.data(), nullptr, 1, 2, sizes, strides), route}, kRows * pitch, {}};
    for (Bytes& bytes : slot) made.slots.push_back(bytes.data());
    return made;
  };
  ChunkLoop loop;
  loop.depth = depth;
  loop.event_sets = options.event_sets;
  loop.limit = limit;
  loop.count = chunks;
  loop.through = through;
  loop.in = {end(source, inside, in)};
  loop.out = {end(result, through ? inside : outside, out)};

  engine.begin(nullptr);
  while (loop.stored < chunks) {
    loop.run(
        engine,
        [&](int slot) {
          driver.enqueue(Stream::compute, [&, i = static_cast<std::size_t>(slot)] {
            for (std::size_t j = 0; j < each; ++j) outside[i][j] = static_cast<char>(inside[i][j] + 1);
            return true;
          });
        },
        seed % 2 == 0 ? 1000 : 0);  // 0: it returns after each chunk
  }
  while (!engine.wait_landed(chunks, 100)) {
  }
  CHECK(engine.error().empty());
  CHECK(engine.drain(1000));
  bool right = true;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool is_gap = i % static_cast<std::size_t>(pitch) >= std::size_t{kColumns};
    right = right && result[i] == (is_gap ? 'x' : static_cast<char>(source[i] + (through ? 0 : 1)));
  }
  return right;
}

TEST(a_thousand_random_orders_are_right) {
  for (unsigned i = 1; i <= 1000; ++i) {
    const unsigned seed = test::seed() + i;
    const int depth = 1 + static_cast<int>(i % 4);
    const bool through = i % 5 == 0;
    const Route in = i % 3 == 0 ? Route::ring : Route::direct;
    const Route out = through || i % 7 > 2 ? Route::direct : Route::ring;
    const int limit = depth + static_cast<int>(i % 2) * depth;
    if (!streams(in, out, depth, limit, through, seed)) {
      std::cerr << "seed " << seed << ", case " << i << "\n";
      CHECK(false);
    }
  }
}

TEST(a_missing_edge_of_the_loop_is_seen) {
  for (bool through : {false, true}) {
    for (Stream stream : {Stream::h2d, Stream::compute, Stream::d2h}) {
      bool seen = false;
      for (unsigned seed = 1; seed <= 200 && !seen; ++seed) {
        seen = !streams(Route::direct, Route::direct, 2, 4, through, seed, static_cast<int>(stream));
      }
      CHECK(seen);
    }
  }
}

TEST(a_loop_ends_where_a_copy_fails) {
  EngineOptions options;
  auto made = std::make_unique<SimulatedDriver>(options.events(), 1, kNothing);
  made->fail_after(5);
  Engine engine(std::move(made), options);
  Bytes host(3000), slot(100);
  const std::int64_t sizes[] = {100}, strides[] = {1};
  ChunkLoop loop;
  loop.count = 30;
  loop.in = {{{make_copy(host.data(), nullptr, 1, 1, sizes, strides), Route::direct}, 100, {slot.data()}}};
  loop.out = loop.in;
  engine.begin(nullptr);
  loop.run(engine, [](int) {}, 1000);
  CHECK(loop.stored < loop.count);
  CHECK(engine.error() == "no more copies");
  CHECK(engine.drain(1000));
}

TEST(an_error_of_the_device_is_told_where_the_caller_completes_a_chunk) {
  EngineOptions options;
  auto made = std::make_unique<SimulatedDriver>(options.events(), 1, kNothing);
  SimulatedDriver& driver = *made;
  Engine engine(std::move(made), options);
  Bytes host(100), slot(100);
  const std::int64_t sizes[] = {100}, strides[] = {1};
  for (Route route : {Route::direct, Route::ring}) {
    engine.begin(nullptr);
    auto command = std::make_shared<Command>();
    command->copies.push_back({make_copy(host.data(), slot.data(), 1, 1, sizes, strides), route});
    engine.store(command);
    driver.lose();
    while (!engine.wait_landed(1, 100)) {
    }
    CHECK(engine.error() == "the device is lost");
  }
}

}  // namespace
}  // namespace sluice::transfer::chunk_loop_tests
