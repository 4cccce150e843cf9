#include "kernels/transfer/copy_worker.h"

#include <pthread.h>

#include <algorithm>
#include <new>

namespace sluice::transfer {
namespace {

constexpr std::int64_t kFilePacket = 4 << 20;
constexpr std::int64_t kSmallCommand = 256 << 10;  // bytes that one thread copies while another would wake
constexpr std::int64_t kMaxPitch = 0x7fffffff;     // cudaDevAttrMaxPitch of every device so far

}  // namespace

CopyWorker::CopyWorker(Direction direction, Driver& driver, StagingPool& pool, PinnedRing& ring, WorkerEvents events)
    : direction_(direction), driver_(driver), pool_(pool), ring_(ring), events_(std::move(events)) {}

void CopyWorker::start() {
  thread_ = std::thread([this] { run(); });
}

void CopyWorker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CopyWorker::push(std::shared_ptr<Command> command) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
    busy_ = true;
  }
  changed_.notify_all();
}

bool CopyWorker::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void CopyWorker::run() {
  pthread_setname_np(pthread_self(), direction_ == Direction::in ? "sluice-in" : "sluice-out");
  driver_.attach();
  for (;;) {
    while (step()) {
    }
    std::unique_lock lock(mutex_);
    if (!queue_.empty()) continue;
    busy_ = false;
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    busy_ = true;
  }
}

bool CopyWorker::take_command() {
  if (command_ != nullptr) return true;
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return false;
  command_ = std::move(queue_.front());
  queue_.pop_front();
  copy_ = 0;
  at_ = 0;
  return true;
}

bool CopyWorker::has_packet() {
  if (!take_command()) return false;
  if (command_->issued) copy_ = command_->copies.size();
  while (copy_ < command_->copies.size() && at_ >= command_->copies[copy_].bytes.bytes()) {
    ++copy_;
    at_ = 0;
  }
  return true;
}

bool CopyWorker::next_needs_buffer() {
  return copy_ < command_->copies.size() && command_->copies[copy_].route == Route::ring;
}

std::int64_t CopyWorker::packet_bytes(const ChunkCopy& copy) const {
  return copy.route == Route::ring ? ring_.buffer_bytes() : copy.bytes.bytes();
}

std::unique_ptr<Packet> CopyWorker::next_packet() {
  auto packet = std::make_unique<Packet>();
  packet->command = command_;
  if (copy_ == command_->copies.size()) {
    command_ = nullptr;
    return packet;
  }
  const ChunkCopy& copy = command_->copies[copy_];
  packet->copy = &copy;
  packet->begin = at_;
  packet->end = std::min(at_ + packet_bytes(copy), copy.bytes.bytes());
  at_ = packet->end;
  return packet;
}

void CopyWorker::issue_waits(const Command& command) {
  for (int event : command.waits) {
    if (!driver_.wait(stream(), event)) fail(driver_.error());
  }
  events_.begun(command);
}

void CopyWorker::issue(const Command& command) {
  issue_waits(command);
  for (const ChunkCopy& copy : command.copies) copy_now(command, copy);
  driver_.record(stream(), event_of(command.set, end_mark()));
}

RingBuffer* CopyWorker::issue_small(const Command& command) {
  const std::int64_t bytes = command.ring_bytes();
  if (bytes <= 0 || bytes > std::min(kSmallCommand, ring_.buffer_bytes()) || !idle()) return nullptr;
  if (ring_.next().staged || !driver_.complete(ring_.next().event) || !ring_.prepare()) return nullptr;
  RingBuffer& buffer = ring_.take();
  const bool in = direction_ == Direction::in;
  for (int event : command.host_waits) driver_.synchronize(event);
  char* at = buffer.memory;
  for (const ChunkCopy& copy : command.copies) {
    const std::int64_t size = copy.bytes.bytes();
    if (in && !copy_guarded(direction_, copy.bytes, 0, size, at)) fail("a file ended while it was read");
    at += size;
  }
  issue_waits(command);
  at = buffer.memory;
  for (const ChunkCopy& copy : command.copies) {
    const std::int64_t size = copy.bytes.bytes();
    char* const target = in ? copy.bytes.packed : at;
    const char* const source = in ? at : copy.bytes.packed;
    if (!events_.failed() && !driver_.copy(stream(), {target, source, size, 1, size, size})) fail(driver_.error());
    at += size;
  }
  driver_.record(stream(), buffer.event);
  driver_.record(stream(), event_of(command.set, end_mark()));
  buffer.staged = !in;
  return &buffer;
}

void CopyWorker::unpack(const Command& command, RingBuffer& buffer) {
  const char* at = buffer.memory;
  for (const ChunkCopy& copy : command.copies) {
    const std::int64_t size = copy.bytes.bytes();
    if (!events_.failed() && !copy_guarded(direction_, copy.bytes, 0, size, const_cast<char*>(at))) {
      fail("a file ended while it was written");
    }
    at += size;
  }
  buffer.staged = false;
}

void CopyWorker::copy_now(const Command& command, const ChunkCopy& copy) {
  if (copy.route == Route::pageable && copy.mapping != Mapping::anonymous) return copy_file(command, copy);
  copy_direct(copy);
}

// Copies pages of a file through our own buffer: where the file ends our copy can be left, the driver's cannot.
void CopyWorker::copy_file(const Command& command, const ChunkCopy& copy) {
  const std::int64_t bytes = copy.bytes.bytes();
  const int end = event_of(command.set, end_mark());
  const std::unique_ptr<char[]> buffer(new (std::nothrow) char[static_cast<std::size_t>(std::min(bytes, kFilePacket))]);
  if (buffer == nullptr) return fail("out of memory for a piece of a file");
  for (std::int64_t at = 0; at < bytes && !events_.failed(); at += kFilePacket) {
    const std::int64_t size = std::min(kFilePacket, bytes - at);
    char* const packed = copy.bytes.packed + at;
    const bool in = direction_ == Direction::in;
    if (in && !copy_guarded(direction_, copy.bytes, at, at + size, buffer.get())) {
      return fail("a file ended while it was read");
    }
    const DeviceCopy moved = in ? DeviceCopy{packed, buffer.get(), size, 1, size, size}
                                : DeviceCopy{buffer.get(), packed, size, 1, size, size};
    // Waits in both directions: the buffer is reused, then freed.
    const bool done = driver_.copy(stream(), moved) && driver_.record(stream(), end) && driver_.synchronize(end);
    if (!done) return fail(driver_.error());
    if (!in && !copy_guarded(direction_, copy.bytes, at, at + size, buffer.get())) {
      return fail("a file ended while it was written");
    }
  }
}

// One call copies the rows of the innermost strided dimension; the outer dimensions take a call each.
void CopyWorker::copy_direct(const ChunkCopy& copy) {
  if (events_.failed()) return;
  const StridedCopy& bytes = copy.bytes;
  const std::int64_t rows = bytes.rank == 0 ? 1 : bytes.extent[bytes.rank - 1];
  const std::int64_t pitch = bytes.rank == 0 ? bytes.span : bytes.stride[bytes.rank - 1];
  const std::int64_t planes = rows == 0 ? 0 : bytes.rows() / rows;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    char* host = bytes.host;
    std::int64_t rest = plane;
    for (int d = bytes.rank - 1; d-- > 0;) {
      host += rest % bytes.extent[d] * bytes.stride[d];
      rest /= bytes.extent[d];
    }
    char* const packed = bytes.packed + plane * rows * bytes.span;
    // CUDA's 2D copy takes pitches from the row's length to kMaxPitch; expanded and very wide rows are copied singly.
    const bool as_rows = rows == 1 || (pitch >= bytes.span && pitch <= kMaxPitch);
    const std::int64_t step = as_rows ? rows : 1;
    for (std::int64_t row = 0; row < rows; row += step) {
      char* const near = host + row * pitch;
      char* const far = packed + row * bytes.span;
      const DeviceCopy copies = direction_ == Direction::in
                                    ? DeviceCopy{far, near, bytes.span, step, bytes.span, pitch}
                                    : DeviceCopy{near, far, bytes.span, step, pitch, bytes.span};
      if (!driver_.copy(stream(), copies)) return fail(driver_.error());
    }
  }
}

void CopyWorker::fail(const std::string& text) { events_.fail(text); }

}  // namespace sluice::transfer
