#include "kernels/transfer/pinned_ring.h"

namespace sluice::transfer {

PinnedRing::PinnedRing(Driver& driver, int buffers, std::int64_t buffer_bytes, int first_event)
    : driver_(driver), buffer_bytes_(buffer_bytes), buffers_(static_cast<std::size_t>(buffers)) {
  for (RingBuffer& buffer : buffers_) buffer.event = first_event++;
}

PinnedRing::~PinnedRing() {
  if (memory_ != nullptr) driver_.free_pinned(memory_, bytes());
}

bool PinnedRing::prepare() {
  if (memory_ != nullptr) return true;
  memory_ = driver_.allocate_pinned(bytes());
  if (memory_ == nullptr) return false;
  allocated_ = bytes();
  char* at = memory_;
  for (RingBuffer& buffer : buffers_) {
    buffer.memory = at;
    at += buffer_bytes_;
  }
  return true;
}

RingBuffer& PinnedRing::take() {
  RingBuffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  return buffer;
}

}  // namespace sluice::transfer
