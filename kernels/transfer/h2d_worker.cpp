// Host to device, for memory that is copied through the pinned ring.
//
//   queue ->  [packet|packet|packet|end]    at most a ring buffer each
//                   |
//             staging pool               copies into free buffers, several packets at once    Batch: copied
//                   |  oldest first
//             h2d stream                 one contiguous copy per packet                    ring event: buffer is free
//                   |
//             fetched[set]               after the last packet: the compute stream may wait for it
//
// The stream waits for the command's events before the first copy into a slot. If the device shares the host's memory,
// this thread waits for them itself, because the pool writes into the slot.
#include "kernels/transfer/copy_worker.h"

namespace sluice::transfer {
namespace {

class H2dWorker final : public CopyWorker {
 public:
  H2dWorker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events)
      : CopyWorker(Direction::in, driver, pool, ring, std::move(events)) {
    start();
  }
  ~H2dWorker() override { stop(); }

 private:
  bool step() override {
    if (has_packet() && buffer_is_free()) {
      stage(next_packet());
      return true;
    }
    if (!staged_.empty()) {
      pool_.wait(staged_.front()->batch);
      issue_oldest();
      return true;
    }
    if (!has_packet()) return false;
    if (!driver_.synchronize(ring_.next().event)) fail(driver_.error());
    return true;
  }

  bool buffer_is_free() {
    if (!next_needs_buffer()) return true;
    return !ring_.next().staged && driver_.complete(ring_.next().event);
  }

  void stage(std::unique_ptr<Packet> packet) {
    Command& command = *packet->command;
    if (started_ != &command) {
      started_ = &command;
      for (int event : command.host_waits) driver_.synchronize(event);
      for (const ChunkCopy& copy : command.copies) {
        if (copy.route != Route::shared) continue;
        for (int event : command.waits) driver_.synchronize(event);
        break;
      }
    }
    if (packet->copy != nullptr && !events_.failed()) {
      const ChunkCopy& copy = *packet->copy;
      if (copy.route == Route::ring) {
        if (ring_.prepare()) {
          packet->buffer = &ring_.take();
          packet->buffer->staged = true;
        } else {
          fail("out of page-locked memory. " + driver_.error());
        }
      }
      char* const target = packet->buffer != nullptr ? packet->buffer->memory : copy.bytes.packed + packet->begin;
      if (packet->buffer != nullptr || copy.route == Route::shared) {
        pool_.submit(Direction::in, copy.bytes, packet->begin, packet->end, target, copy.mapping, packet->batch);
      }
    }
    staged_.push_back(std::move(packet));
  }

  void issue_oldest() {
    const std::unique_ptr<Packet> packet = std::move(staged_.front());
    staged_.pop_front();
    const Command& command = *packet->command;
    if (packet->batch.lost()) fail("a file ended while it was read");
    if (issued_ != &command) {
      issued_ = &command;
      issue_waits(command);
    }
    if (packet->copy == nullptr) {
      driver_.record(stream(), event_of(command.set, Mark::fetched));
      issued_ = started_ = nullptr;
      events_.issued(command.set);
      return;
    }
    if (packet->copy->route == Route::direct || packet->copy->route == Route::pageable) {
      copy_now(command, *packet->copy);
    }
    if (packet->buffer == nullptr) return;
    const std::int64_t bytes = packet->end - packet->begin;
    if (!events_.failed() && !driver_.copy(stream(), {packet->copy->bytes.packed + packet->begin,
                                                      packet->buffer->memory, bytes, 1, bytes, bytes})) {
      fail(driver_.error());
    }
    driver_.record(stream(), packet->buffer->event);
    packet->buffer->staged = false;
  }

  std::deque<std::unique_ptr<Packet>> staged_;
  const Command* started_ = nullptr;
  const Command* issued_ = nullptr;
};

}  // namespace

std::unique_ptr<CopyWorker> make_h2d_worker(Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events) {
  return std::make_unique<H2dWorker>(driver, pool, ring, std::move(events));
}

}  // namespace sluice::transfer
