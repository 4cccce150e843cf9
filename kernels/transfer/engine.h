// The engine of one device: it moves the bytes of chunks in both directions and keeps the order by events.
//
//                slot 0      slot 1      slot 2        `depth` slots on the device, the scheduler's
//   h2d       [copy 0  ][copy 1  ][copy 2  ][copy 3  ]            copy 3 waits for computed[0]: slot 0 is read
//   compute              [fn 0    ][fn 1    ][fn 2    ][fn 3 ]    fn k waits for fetched[k], and for stored[k - depth]
//   d2h                             [copy 0 ][copy 1  ][copy 2 ]  copy k waits for computed[k]
//
// Every edge is an event on a stream; no stream waits for the host, and the host waits only for memory of its own: for
// a ring buffer to be free, and for results to land. Which events a command waits for is the scheduler's to say
// (python/sluice/stream/device/pipeline.py); the engine issues them in the order in which they come.
//
// All functions may be called from any thread and none holds a lock while it waits for the device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/driver.h"
#include "kernels/transfer/lane.h"
#include "kernels/transfer/ring.h"
#include "kernels/transfer/staging_pool.h"
#include "kernels/transfer/timeline.h"

namespace sluice::transfer {

struct EngineOptions {
  int window = 6;        // sets of events: chunks in flight, as the host sees it
  int threads = 1;       // that stage
  int ring_buffers = 8;  // a direction
  std::int64_t ring_buffer_bytes = 8 << 20;

  // Events that a driver must have: those with times, which are the sets and the start of the run, and then the ring's,
  // the caller's stream and the drain's.
  int timed_events() const { return window * kMarks + 1; }
  int events() const { return timed_events() + 2 * ring_buffers + 1 + kStreams; }
};

class Engine {
 public:
  Engine(std::unique_ptr<Driver> driver, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A new run: copies wait for what `caller_stream` has in its queue now. Nothing may be in flight.
  void begin(void* caller_stream);
  void fetch(std::shared_ptr<Command> command);
  void store(std::shared_ptr<Command> command);
  // The compute stream waits for the events. False where a copy that ends in one is not issued (on a host device: not
  // complete) within the time.
  bool acquire(const std::vector<int>& waits, int set, int milliseconds);
  void commit(int set);

  // The host's memory that the set's copies in come from has been read: it is staged, or, where the device reads some
  // of it `directly`, copied. False where it is not within the time.
  bool wait_read(int set, bool directly, int milliseconds);

  // Chunks whose results are in the host's memory, since begin().
  std::int64_t landed() const { return landed_.load(); }
  bool wait_landed(std::int64_t count, int milliseconds);
  // Everything issued is complete, on all three streams; false where it is not within the time.
  bool drain(int milliseconds);
  // The caller's stream waits for the compute stream.
  void join(void* caller_stream);

  bool has_failed() const { return failed_.load(); }
  std::string error();
  std::vector<Times> take_times();
  // Bytes by route since begin(), in and then out; and bytes of page-locked rings.
  std::vector<std::int64_t> counters() const;
  void* native_stream(Stream stream) const { return driver_->native_stream(stream); }
  void delay(Stream stream, int microseconds) { driver_->delay(stream, microseconds); }
  Driver& driver() { return *driver_; }
  StagingPool& pool() { return pool_; }

 private:
  int start_event() const { return options_.timed_events() - 1; }
  int ring_event(int index) const { return options_.timed_events() + index; }
  int caller_event() const { return ring_event(2 * options_.ring_buffers); }
  int drain_event(int stream) const { return caller_event() + 1 + stream; }

  void submit(Lane& lane, Mark end, std::shared_ptr<Command> command);
  void on_issued(int set, Mark mark);
  void on_landed(int set);
  void fail(const std::string& text);
  bool issued(const std::vector<int>& waits) const;

  const EngineOptions options_;
  const std::unique_ptr<Driver> driver_;
  Timeline timeline_;
  StagingPool pool_;
  Ring in_ring_, out_ring_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> pending_;  // by event: commands submitted that have not recorded it yet
  std::string error_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> landed_ = 0;
  std::vector<Times> times_;
  std::atomic<std::int64_t> moved_[2][kRoutes] = {};
  bool host_must_wait_ = false;  // for the caller's stream, before threads read its memory

  std::unique_ptr<Lane> in_, out_;  // last: their threads use what stands above
};

}  // namespace sluice::transfer
