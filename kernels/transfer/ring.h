// A bounded ring of page-locked buffers, used in order. Made at its first use, so that runs that need none lock
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/transfer/driver.h"

namespace sluice::transfer {

struct RingBuffer {
  char* memory = nullptr;
  int event = 0;        // complete when the copy engine is through with the memory
  bool staged = false;  // a thread of the host is at it, or it waits to be copied
};

class Ring {
 public:
  // `buffers` events from `first_event` on are the ring's.
  Ring(Driver& driver, int buffers, std::int64_t buffer_bytes, int first_event);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  std::int64_t buffer_bytes() const { return buffer_bytes_; }
  std::int64_t allocated() const { return allocated_.load(); }
  bool prepare();  // false where there is no memory to lock
  // The next buffer in order, wherever it is in use or not; take() moves on to the one after it.
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
