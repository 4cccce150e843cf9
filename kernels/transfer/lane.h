// A lane moves chunks in one direction: a queue of commands and a thread that works through it. See in_lane.cpp and
// out_lane.cpp for who waits for whom.
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
#include "kernels/transfer/ring.h"
#include "kernels/transfer/staging_pool.h"

namespace sluice::transfer {

// What a lane tells the engine.
struct LaneEvents {
  std::function<void(const Command&)> begun;          // its first copy is being issued
  std::function<void(int set)> issued;                // the event that ends the command is recorded
  std::function<void(int set)> landed;                // its bytes have arrived; only of the lane that goes out
  std::function<void(const std::string& text)> fail;  // the first text counts; copies that follow move nothing
  std::function<bool()> failed;
};

// A part of a command that fits into one ring buffer, or the command's end.
struct Piece {
  std::shared_ptr<Command> command;
  const ChunkCopy* copy = nullptr;  // null: the end
  std::int64_t begin = 0, end = 0;
  RingBuffer* buffer = nullptr;
  Batch batch;
};

class Lane {
 public:
  Lane(Direction direction, Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events);
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void push(std::shared_ptr<Command> command);
  // Issues an immediate command on the calling thread: waits, begin, copies, end.
  void issue(const Command& command);
  bool idle();

 protected:
  virtual bool step() = 0;  // does one thing; false where there is nothing to do before a new command comes
  void start();
  void stop();  // called by the destructors of the two lanes, whose step() the thread runs

  // The next piece of the command at hand; the end after its last. Null where no command is there.
  std::unique_ptr<Piece> next_piece();
  bool has_piece();
  bool next_needs_buffer();
  std::int64_t piece_bytes(const ChunkCopy& copy) const;
  void issue_waits(const Command& command);
  // A copy that the device makes itself: of page-locked memory, or of memory that its driver stages.
  void copy_now(const Command& command, const ChunkCopy& copy);
  void fail(const std::string& text);

  Stream stream() const { return direction_ == Direction::in ? Stream::h2d : Stream::d2h; }
  Mark end_mark() const { return direction_ == Direction::in ? Mark::fetched : Mark::stored; }

  const Direction direction_;
  Driver& driver_;
  StagingPool& pool_;
  Ring& ring_;
  LaneEvents events_;

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
  // Of the thread alone: the command that is being cut into pieces.
  std::shared_ptr<Command> command_;
  std::size_t copy_ = 0;
  std::int64_t at_ = 0;
};

std::unique_ptr<Lane> make_in_lane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events);
std::unique_ptr<Lane> make_out_lane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events);

}  // namespace sluice::transfer
