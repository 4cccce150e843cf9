#include "kernels/transfer/host_driver.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace sluice::transfer {
namespace {

using Clock = std::chrono::steady_clock;

// Counts records, as CUDA does: a wait is for the last record before it; later records do not matter.
struct Event {
  std::uint64_t recorded = 0, completed = 0;
  Clock::time_point time;
};

class HostDriver final : public Driver {
 public:
  explicit HostDriver(int events) : events_(static_cast<std::size_t>(events)) {
    try {
      for (Queue& queue : queues_) queue.thread = std::thread([this, &queue] { run(queue); });
    } catch (...) {  // the first may already run
      stop();
      throw;
    }
  }

  ~HostDriver() override { stop(); }

  bool shares_memory() const override { return true; }
  void* native_stream(Stream) const override { return nullptr; }

  bool record(Stream stream, int event) override {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = ++events_[static_cast<std::size_t>(event)].recorded;
    const auto complete = [this, event, number] {
      const std::lock_guard inner(mutex_);
      finish(event, number);
    };
    Queue* const queue = queue_of(stream);
    if (queue == nullptr || queue->is_idle()) {
      finish(event, number);
    } else {
      queue->work.emplace_back(complete);
      changed_.notify_all();
    }
    return true;
  }

  bool wait(Stream stream, int event) override {
    std::unique_lock lock(mutex_);
    const std::uint64_t number = events_[static_cast<std::size_t>(event)].recorded;
    const auto block = [this, event, number] {
      std::unique_lock inner(mutex_);
      changed_.wait(inner, [&] { return events_[static_cast<std::size_t>(event)].completed >= number; });
    };
    if (Queue* const queue = queue_of(stream)) {
      if (queue->is_idle() && events_[static_cast<std::size_t>(event)].completed >= number) return true;
      queue->work.emplace_back(block);
      changed_.notify_all();
    } else {
      lock.unlock();
      block();
    }
    return true;
  }

  bool record_foreign(void*, int event) override { return record(Stream::compute, event); }
  bool make_wait(void*, int event) override { return synchronize(event); }

  bool complete(int event) override {
    const std::lock_guard lock(mutex_);
    const Event& state = events_[static_cast<std::size_t>(event)];
    return state.completed >= state.recorded;
  }

  bool synchronize(int event) override { return wait(Stream::compute, event); }

  double seconds(int from, int to) override {
    const std::lock_guard lock(mutex_);
    const auto time = [this](int event) { return events_[static_cast<std::size_t>(event)].time; };
    return std::chrono::duration<double>(time(to) - time(from)).count();
  }

  bool copy(Stream stream, const DeviceCopy& copy) override {
    return enqueue(stream, [copy] {
      for (std::int64_t row = 0; row < copy.rows; ++row) {
        std::memcpy(copy.target + row * copy.target_pitch, copy.source + row * copy.source_pitch,
                    static_cast<std::size_t>(copy.span));
      }
    });
  }

  bool delay(Stream stream, int microseconds) override {
    return enqueue(stream, [microseconds] { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); });
  }

  char* allocate_pinned(std::int64_t bytes) override {
    return static_cast<char*>(operator new(static_cast<std::size_t>(bytes), std::align_val_t{4096}, std::nothrow));
  }
  void free_pinned(char* memory, std::int64_t) override { operator delete(memory, std::align_val_t{4096}); }

  std::string error() const override { return {}; }

 private:
  struct Queue {
    std::deque<std::function<void()>> work;
    bool working = false;
    std::thread thread;
    bool is_idle() const { return work.empty() && !working; }
  };

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (Queue& queue : queues_) {
      if (queue.thread.joinable()) queue.thread.join();
    }
  }

  Queue* queue_of(Stream stream) {
    return stream == Stream::compute ? nullptr : &queues_[stream == Stream::h2d ? 0 : 1];
  }

  void finish(int event, std::uint64_t number) {  // the mutex is held
    Event& state = events_[static_cast<std::size_t>(event)];
    if (number > state.completed) state.completed = number;
    state.time = Clock::now();
    changed_.notify_all();
  }

  bool enqueue(Stream stream, std::function<void()> work) {
    if (Queue* const queue = queue_of(stream)) {
      const std::lock_guard lock(mutex_);
      queue->work.push_back(std::move(work));
      changed_.notify_all();
    } else {
      work();
    }
    return true;
  }

  void run(Queue& queue) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !queue.work.empty(); });
      if (queue.work.empty()) return;
      const std::function<void()> work = std::move(queue.work.front());
      queue.work.pop_front();
      queue.working = true;
      lock.unlock();
      work();
      lock.lock();
      queue.working = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<Event> events_;
  Queue queues_[2];
};

}  // namespace

std::unique_ptr<Driver> make_host_driver(int events) { return std::make_unique<HostDriver>(events); }

}  // namespace sluice::transfer
