// A device whose three streams advance in random order, for tests of schedules.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

// A device of three streams whose steps are taken in random order, whenever someone looks at an event. A stream does
// not wait for anything if it is `broken`.
class SimulatedDriver : public Driver {
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

}  // namespace sluice::transfer
