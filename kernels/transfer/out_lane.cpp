// Device to host.
//
//   queue ->  [piece|piece|end]
//                   |  while a buffer is free
//             d2h stream                 one dense copy a piece into a ring buffer       ring event: arrived
//                   |  stored[set] after the last one: the slot on the device is free
//             staging pool               from the buffer into the result                 Batch: copied, buffer is free
//                   |  oldest first
//             landed                     the chunk is complete in the host's memory
//
// Chunks that went directly come here for their end only. Of a device that shares the host's memory the pool reads the
// slot itself, so the slot is free when the chunk has landed and not before.
#include "kernels/transfer/lane.h"

namespace sluice::transfer {
namespace {

class OutLane final : public Lane {
 public:
  OutLane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events)
      : Lane(Direction::out, driver, pool, ring, std::move(events)) {
    start();
  }
  ~OutLane() override { stop(); }

 private:
  bool step() override {
    if (has_piece() && !(next_needs_buffer() && ring_.next().staged)) {
      issue_piece(next_piece());
      return true;
    }
    // What has landed meanwhile first: it frees buffers, and the copy engine must not run dry.
    if (!landing_.empty() && landing_.front()->batch.done()) {
      land_oldest();
      return true;
    }
    if (!flying_.empty()) {
      receive_oldest();
      return true;
    }
    if (!landing_.empty()) {
      land_oldest();
      return true;
    }
    return has_piece();
  }

  void issue_piece(std::unique_ptr<Piece> piece) {
    Command& command = *piece->command;
    if (issued_ != &command && !command.issued) {
      issued_ = &command;
      issue_waits(command);
    }
    if (piece->copy == nullptr) {
      if (!command.issued && !shared(command)) finish(command);
      issued_ = nullptr;
    } else if (piece->copy->route == Route::ring) {
      issue_to_ring(*piece);
    } else if (piece->copy->route != Route::shared) {
      copy_now(command, *piece->copy);
    }
    flying_.push_back(std::move(piece));
  }

  void issue_to_ring(Piece& piece) {
    if (!ring_.prepare()) return fail("out of page-locked memory. " + driver_.error());
    piece.buffer = &ring_.take();
    piece.buffer->staged = true;
    const std::int64_t bytes = piece.end - piece.begin;
    if (!events_.failed() && !driver_.copy(stream(), {piece.buffer->memory, piece.copy->bytes.dense + piece.begin,
                                                      bytes, 1, bytes, bytes})) {
      fail(driver_.error());
    }
    driver_.record(stream(), piece.buffer->event);
  }

  void finish(Command& command) {
    driver_.record(stream(), event_of(command.set, Mark::stored));
    command.issued = true;
    events_.issued(command.set);
  }

  static bool shared(const Command& command) {
    for (const ChunkCopy& copy : command.copies) {
      if (copy.route == Route::shared) return true;
    }
    return false;
  }

  void receive_oldest() {
    std::unique_ptr<Piece> piece = std::move(flying_.front());
    flying_.pop_front();
    if (piece->copy != nullptr && !events_.failed()) {
      const ChunkCopy& copy = *piece->copy;
      if (copy.route == Route::shared) {
        for (int event : piece->command->waits) driver_.synchronize(event);
        pool_.submit(Direction::out, copy.bytes, piece->begin, piece->end, copy.bytes.dense + piece->begin,
                     copy.mapping, piece->batch);
      } else if (piece->buffer != nullptr) {
        if (!driver_.synchronize(piece->buffer->event)) fail(driver_.error());
        pool_.submit(Direction::out, copy.bytes, piece->begin, piece->end, piece->buffer->memory, copy.mapping,
                     piece->batch);
      }
    }
    landing_.push_back(std::move(piece));
  }

  void land_oldest() {
    const std::unique_ptr<Piece> piece = std::move(landing_.front());
    landing_.pop_front();
    pool_.wait(piece->batch);
    if (piece->batch.lost()) fail("a file ended while it was written");
    if (piece->buffer != nullptr) piece->buffer->staged = false;
    if (piece->copy != nullptr) return;
    if (!piece->command->issued) finish(*piece->command);
    if (!driver_.synchronize(event_of(piece->command->set, Mark::stored))) fail(driver_.error());
    events_.landed(piece->command->set);
  }

  std::deque<std::unique_ptr<Piece>> flying_, landing_;
  const Command* issued_ = nullptr;
};

}  // namespace

std::unique_ptr<Lane> make_out_lane(Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events) {
  return std::make_unique<OutLane>(driver, pool, ring, std::move(events));
}

}  // namespace sluice::transfer
