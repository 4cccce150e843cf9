// Host to device, for memory that threads must stage.
//
//   queue ->  [piece|piece|piece|end]    cut to the size of a ring buffer
//                   |
//             staging pool               copies into free buffers, several pieces at once    Batch: copied
//                   |  oldest first
//             h2d stream                 one dense copy a piece                          ring event: buffer is free
//                   |
//             fetched[set]               after the last piece: the compute stream may wait for it
//
// A slot's memory is the device's concern: the stream waits for the command's events before the first copy. Only where
// the device shares the host's memory does this thread wait for them itself, because the pool writes into the slot.
#include "kernels/transfer/lane.h"

namespace sluice::transfer {
namespace {

class InLane final : public Lane {
 public:
  InLane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events)
      : Lane(Direction::in, driver, pool, ring, std::move(events)) {
    start();
  }
  ~InLane() override { stop(); }

 private:
  bool step() override {
    if (has_piece() && buffer_is_free()) {
      stage(next_piece());
      return true;
    }
    if (!staged_.empty()) {
      pool_.wait(staged_.front()->batch);
      issue_oldest();
      return true;
    }
    if (!has_piece()) return false;
    if (!driver_.synchronize(ring_.next().event)) fail(driver_.error());
    return true;
  }

  bool buffer_is_free() {
    if (!next_needs_buffer()) return true;
    return !ring_.next().staged && driver_.complete(ring_.next().event);
  }

  void stage(std::unique_ptr<Piece> piece) {
    Command& command = *piece->command;
    if (started_ != &command) {
      started_ = &command;
      for (int event : command.host_waits) driver_.synchronize(event);
      for (const ChunkCopy& copy : command.copies) {
        if (copy.route != Route::shared) continue;
        for (int event : command.waits) driver_.synchronize(event);
        break;
      }
    }
    if (piece->copy != nullptr && !events_.failed()) {
      const ChunkCopy& copy = *piece->copy;
      if (copy.route == Route::ring) {
        if (ring_.prepare()) {
          piece->buffer = &ring_.take();
          piece->buffer->staged = true;
        } else {
          fail("out of page-locked memory. " + driver_.error());
        }
      }
      char* const target = piece->buffer != nullptr ? piece->buffer->memory : copy.bytes.dense + piece->begin;
      if (piece->buffer != nullptr || copy.route == Route::shared) {
        pool_.submit(Direction::in, copy.bytes, piece->begin, piece->end, target, copy.mapping, piece->batch);
      }
    }
    staged_.push_back(std::move(piece));
  }

  void issue_oldest() {
    const std::unique_ptr<Piece> piece = std::move(staged_.front());
    staged_.pop_front();
    const Command& command = *piece->command;
    if (piece->batch.lost()) fail("a file ended while it was read");
    if (issued_ != &command) {
      issued_ = &command;
      issue_waits(command);
    }
    if (piece->copy == nullptr) {
      driver_.record(stream(), event_of(command.set, Mark::fetched));
      issued_ = started_ = nullptr;
      events_.issued(command.set);
      return;
    }
    if (piece->copy->route == Route::direct || piece->copy->route == Route::pageable) {
      copy_now(command, *piece->copy);
    }
    if (piece->buffer == nullptr) return;
    const std::int64_t bytes = piece->end - piece->begin;
    if (!events_.failed() && !driver_.copy(stream(), {piece->copy->bytes.dense + piece->begin, piece->buffer->memory,
                                                      bytes, 1, bytes, bytes})) {
      fail(driver_.error());
    }
    driver_.record(stream(), piece->buffer->event);
    piece->buffer->staged = false;
  }

  std::deque<std::unique_ptr<Piece>> staged_;
  const Command* started_ = nullptr;
  const Command* issued_ = nullptr;
};

}  // namespace

std::unique_ptr<Lane> make_in_lane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events) {
  return std::make_unique<InLane>(driver, pool, ring, std::move(events));
}

}  // namespace sluice::transfer
