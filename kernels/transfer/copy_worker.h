// A copy worker moves chunks in one direction: a queue of commands and the thread that executes them. h2d_worker.cpp
// and d2h_worker.cpp show who waits for whom.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "kernels/transfer/command.h"
#include "kernels/transfer/driver.h"
#include "kernels/transfer/pinned_ring.h"
#include "kernels/transfer/staging_pool.h"

namespace sluice::transfer {

// Callbacks from a worker to the engine.
struct WorkerEvents {
  std::function<void(const Command&)> begun;          // the command's first copy is being issued
  std::function<void(int set)> issued;                // the command's last event is recorded
  std::function<void(const Command&)> landed;         // the bytes have arrived; only from D2hWorker
  std::function<void()> free_buffers;                 // buffers that the caller holds are needed; only from D2hWorker
  std::function<void(const std::string& text)> fail;  // the first text is kept; later copies move nothing
  std::function<bool()> failed;
};

// The part of a copy that fits into one buffer of the pinned ring, or the command's end.
struct Packet {
  std::shared_ptr<Command> command;
  const ChunkCopy* copy = nullptr;  // null: the end
  std::int64_t begin = 0, end = 0;
  RingBuffer* buffer = nullptr;
  Batch batch;
};

class CopyWorker {
 public:
  CopyWorker(Direction direction, Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events);
  virtual ~CopyWorker() = default;
  CopyWorker(const CopyWorker&) = delete;
  CopyWorker& operator=(const CopyWorker&) = delete;

  void push(std::shared_ptr<Command> command);
  // Issues an immediate command on the calling thread: waits, copies, end.
  void issue(const Command& command);
  // Issues a small command through one buffer of the ring, on the calling thread: waking others takes longer. Null if
  // there is work for the thread, or no free buffer. A buffer to the host is `staged` until unpack() has emptied it.
  RingBuffer* issue_small(const Command& command);
  void unpack(const Command& command, RingBuffer& buffer);
  bool idle();

 protected:
  virtual bool step() = 0;  // does one thing; false if there is nothing to do until a command arrives
  void start();
  void stop();  // called by the destructors of the two lanes, whose step() the thread runs

  // The next packet of the current command; after the last packet, its end. Only if has_packet().
  std::unique_ptr<Packet> next_packet();
  bool has_packet();
  bool next_needs_buffer();
  std::int64_t packet_bytes(const ChunkCopy& copy) const;
  void issue_waits(const Command& command);
  // A copy by the device itself: of pinned memory, or of memory that its driver stages.
  void copy_now(const Command& command, const ChunkCopy& copy);
  void fail(const std::string& text);

  Stream stream() const { return direction_ == Direction::in ? Stream::h2d : Stream::d2h; }
  Mark end_mark() const { return direction_ == Direction::in ? Mark::fetched : Mark::stored; }

  const Direction direction_;
  Driver& driver_;
  StagingPool& pool_;
  PinnedRing& ring_;
  WorkerEvents events_;

 private:
  void run();
  bool take_command();
  void copy_direct(const ChunkCopy& copy);
  void copy_file(const Command& command, const ChunkCopy& copy);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Command>> queue_;
  bool stop_ = false;
  bool busy_ = false;
  std::thread thread_;
  // Used by the thread alone: the command that is being divided into packets.
  std::shared_ptr<Command> command_;
  std::size_t copy_ = 0;
  std::int64_t at_ = 0;
};

std::unique_ptr<CopyWorker> make_h2d_worker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events);
std::unique_ptr<CopyWorker> make_d2h_worker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events);

}  // namespace sluice::transfer
