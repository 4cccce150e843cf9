// A bounded ring of pinned buffers, used in order. Allocated at its first use, so runs that need none pin nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

struct RingBuffer {
  char* memory = nullptr;
  int event = 0;                     // complete when the copy engine has finished with the memory
  std::atomic<bool> staged = false;  // a host thread uses it, or it waits to be copied
};

class PinnedRing {
 public:
  // Uses the events [first_event, first_event + buffers).
  PinnedRing(Driver& driver, int buffers, std::int64_t buffer_bytes, int first_event);
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  std::int64_t buffer_bytes() const { return buffer_bytes_; }
  std::int64_t allocated() const { return allocated_.load(); }
  bool prepare();  // false if there is no memory to pin
  // The next buffer in order, in use or not; take() also advances.
  RingBuffer& next() { return buffers_[next_]; }
  RingBuffer& take();

 private:
  std::int64_t bytes() const { return buffer_bytes_ * static_cast<std::int64_t>(buffers_.size()); }

  Driver& driver_;
  std::int64_t buffer_bytes_;
  std::vector<RingBuffer> buffers_;
  std::size_t next_ = 0;
  char* memory_ = nullptr;
  std::atomic<std::int64_t> allocated_ = 0;
};

}  // namespace sluice::transfer
