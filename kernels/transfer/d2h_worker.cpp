// Device to host.
//
//   queue ->  [packet|packet|end]
//                   |  while a buffer is free
//             d2h stream                 one contiguous copy per packet into a buffer    ring event: arrived
//                   |  stored[set] after the last copy: the slot on the device is free
//             staging pool               from the buffer into the result                 Batch: copied, buffer is free
//                   |  oldest first
//             landed                     the chunk is complete in host memory
//
// A chunk that was copied directly sends only its end here, unless the caller completes it. If the device shares the
// host's memory, the pool reads the slot itself, so the slot is free only when the chunk has landed.
#include "kernels/transfer/copy_worker.h"

namespace sluice::transfer {
namespace {

class D2hWorker final : public CopyWorker {
 public:
  D2hWorker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events)
      : CopyWorker(Direction::out, driver, pool, ring, std::move(events)) {
    start();
  }
  ~D2hWorker() override { stop(); }

 private:
  bool step() override {
    if (has_packet() && !(next_needs_buffer() && ring_.next().staged)) {
      issue_packet(next_packet());
      return true;
    }
    // Landed packets first: they free buffers, and the copy engine must not run out of work.
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
    if (!has_packet()) return false;
    events_.free_buffers();
    return true;
  }

  void issue_packet(std::unique_ptr<Packet> packet) {
    Command& command = *packet->command;
    if (issued_ != &command && !command.issued) {
      issued_ = &command;
      issue_waits(command);
    }
    if (packet->copy == nullptr) {
      if (!command.issued && !shared(command)) finish(command);
      issued_ = nullptr;
    } else if (packet->copy->route == Route::ring) {
      issue_to_ring(*packet);
    } else if (packet->copy->route != Route::shared) {
      copy_now(command, *packet->copy);
    }
    flying_.push_back(std::move(packet));
  }

  void issue_to_ring(Packet& packet) {
    if (!ring_.prepare()) return fail("out of page-locked memory. " + driver_.error());
    packet.buffer = &ring_.take();
    packet.buffer->staged = true;
    const std::int64_t bytes = packet.end - packet.begin;
    if (!events_.failed() && !driver_.copy(stream(), {packet.buffer->memory, packet.copy->bytes.packed + packet.begin,
                                                      bytes, 1, bytes, bytes})) {
      fail(driver_.error());
    }
    driver_.record(stream(), packet.buffer->event);
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
    std::unique_ptr<Packet> packet = std::move(flying_.front());
    flying_.pop_front();
    if (packet->copy != nullptr && !events_.failed()) {
      const ChunkCopy& copy = *packet->copy;
      if (copy.route == Route::shared) {
        for (int event : packet->command->waits) driver_.synchronize(event);
        pool_.submit(Direction::out, copy.bytes, packet->begin, packet->end, copy.bytes.packed + packet->begin,
                     copy.mapping, packet->batch);
      } else if (packet->buffer != nullptr) {
        if (!driver_.synchronize(packet->buffer->event)) fail(driver_.error());
        pool_.submit(Direction::out, copy.bytes, packet->begin, packet->end, packet->buffer->memory, copy.mapping,
                     packet->batch);
      }
    }
    landing_.push_back(std::move(packet));
  }

  void land_oldest() {
    const std::unique_ptr<Packet> packet = std::move(landing_.front());
    landing_.pop_front();
    pool_.wait(packet->batch);
    if (packet->batch.lost()) fail("a file ended while it was written");
    if (packet->buffer != nullptr) packet->buffer->staged = false;
    if (packet->copy != nullptr) return;
    if (!packet->command->issued) finish(*packet->command);
    if (!driver_.synchronize(event_of(packet->command->set, Mark::stored))) fail(driver_.error());
    events_.landed(*packet->command);
  }

  std::deque<std::unique_ptr<Packet>> flying_, landing_;
  const Command* issued_ = nullptr;
};

}  // namespace

std::unique_ptr<CopyWorker> make_d2h_worker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events) {
  return std::make_unique<D2hWorker>(driver, pool, ring, std::move(events));
}

}  // namespace sluice::transfer
