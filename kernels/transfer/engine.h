// The engine of one device moves the bytes of chunks in both directions, ordered by events.
//
//                slot 0      slot 1      slot 2        the scheduler's `depth` slots on the device
//   h2d       [copy 0  ][copy 1  ][copy 2  ][copy 3  ]            copy 3 waits for computed[0]: slot 0 is read
//   compute              [fn 0    ][fn 1    ][fn 2    ][fn 3 ]    fn k waits for fetched[k], and for stored[k - depth]
//   d2h                             [copy 0 ][copy 1  ][copy 2 ]  copy k waits for computed[k]
//
// Every edge is an event on a stream. No stream waits for the host. The host waits only for its own memory: for a free
// buffer of the pinned ring, and for results to land. The scheduler (python/sluice/stream/device/pipeline.py) decides
// which events a command waits for; the engine issues commands in the order of their arrival.
//
// All functions may be called from any thread, and none holds a lock while it waits for the device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/copy_worker.h"
#include "kernels/transfer/driver.h"
#include "kernels/transfer/pinned_ring.h"
#include "kernels/transfer/staging_pool.h"
#include "kernels/transfer/timeline.h"

namespace sluice::transfer {

struct EngineOptions {
  int event_sets = 6;    // chunks that are issued and not landed
  int threads = 1;       // threads of the staging pool
  int ring_buffers = 8;  // buffers per direction
  std::int64_t ring_buffer_bytes = 8 << 20;

  // Events that a driver must have. First events with times: the sets and the start of the run. Then events of rings,
  // the caller's stream and the drain.
  int timed_events() const { return event_sets * kMarks + 1; }
  int events() const { return timed_events() + 2 * ring_buffers + 1 + kStreams; }
};

class Engine {
 public:
  Engine(std::unique_ptr<Driver> driver, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts a run: copies wait for the work now queued on `caller_stream`. Nothing may be in flight.
  void begin(void* caller_stream);
  void fetch(std::shared_ptr<Command> command);
  // Who completes a chunk that no thread has to copy: the caller, when it waits or polls, or a thread of the engine, so
  // that the caller can issue others meanwhile.
  enum class Lander { caller, worker };
  void store(std::shared_ptr<Command> command, Lander lander = Lander::caller);
  // The compute stream waits for the events. False if a copy that ends in one is not issued (on a host device: not
  // complete) in time.
  bool acquire(const std::vector<int>& waits, int set, int milliseconds);
  void move(const DeviceCopy& copy);  // within the device, on the compute stream
  void commit(int set);

  // Waits until the set's source on the host has been read: copied into the ring or, where the device reads some of it
  // `directly`, to the device. False if that takes longer.
  bool wait_read(int set, bool directly, int milliseconds);

  // Chunks since begin() whose results are in host memory; poll() completes chunks whose copies have ended.
  std::int64_t landed() const { return landed_.load(); }
  void poll() { land(/*wait=*/false); }
  bool wait_landed(std::int64_t count, int milliseconds);
  // Waits until all issued work of the three streams is complete; false if that takes longer.
  bool drain(int milliseconds);
  // The caller's stream waits for the compute stream.
  void join(void* caller_stream);

  bool has_failed() const { return failed_.load(); }
  std::string error();
  std::vector<Times> take_times();
  // Bytes by route since begin(), in, then out; last the bytes of the pinned rings.
  std::vector<std::int64_t> counters() const;
  void* native_stream(Stream stream) const { return driver_->native_stream(stream); }
  // For tests: one stream does nothing for that long; half of the later steps, drawn at random, begin up to that much
  // late.
  void delay(Stream stream, int microseconds) { driver_->delay(stream, microseconds); }
  void disturb(unsigned seed, int microseconds);
  Driver& driver() { return *driver_; }
  StagingPool& pool() { return pool_; }

 private:
  int start_event() const { return options_.timed_events() - 1; }
  int ring_event(int index) const { return options_.timed_events() + index; }
  int caller_event() const { return ring_event(2 * options_.ring_buffers); }
  int drain_event(int stream) const { return caller_event() + 1 + stream; }

  // A chunk that the caller completes.
  struct Landing {
    std::shared_ptr<Command> command;
    RingBuffer* buffer;  // buffer to be unpacked, or null
  };

  void submit(CopyWorker& worker, Mark end, std::shared_ptr<Command> command, Lander lander);
  bool land(bool wait);  // completes chunks of landings_; false if there are none left
  void count_landed(const Command& command);
  void on_issued(int set, Mark mark);
  void on_landed(const Command& command);
  void fail(const std::string& text);
  void hold(Stream stream);
  bool issued(const std::vector<int>& waits) const;

  const EngineOptions options_;
  const std::unique_ptr<Driver> driver_;
  Timeline timeline_;
  StagingPool pool_;
  PinnedRing in_ring_, out_ring_;

  std::mutex landing_mutex_;      // lock that may be held while mutex_ is taken
  std::deque<Landing> landings_;  // chunks issued before all that the worker has

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> pending_;  // submitted commands, by event, that have not recorded it
  std::string error_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> landed_ = 0;
  std::vector<Times> times_;
  std::atomic<std::int64_t> moved_[2][kRoutes] = {};
  std::mt19937 random_;
  int most_delay_ = 0;
  bool host_must_wait_ = false;  // the host must wait for the caller's stream before threads read its memory

  std::unique_ptr<CopyWorker> in_, out_;  // last: their threads use the members above
};

}  // namespace sluice::transfer
