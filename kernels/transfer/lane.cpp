#include "kernels/transfer/lane.h"

#include <pthread.h>

#include <algorithm>
#include <new>

namespace sluice::transfer {
namespace {

constexpr std::int64_t kFilePiece = 4 << 20;
constexpr std::int64_t kMaxPitch = 0x7fffffff;  // cudaDevAttrMaxPitch of every device so far

}  // namespace

Lane::Lane(Direction direction, Driver& driver, StagingPool& pool, Ring& ring, LaneEvents events)
    : direction_(direction), driver_(driver), pool_(pool), ring_(ring), events_(std::move(events)) {}

void Lane::start() {
  thread_ = std::thread([this] { run(); });
}

void Lane::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Lane::push(std::shared_ptr<Command> command) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
    busy_ = true;
  }
  changed_.notify_all();
}

bool Lane::idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void Lane::run() {
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

bool Lane::take_command() {
  if (command_ != nullptr) return true;
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return false;
  command_ = std::move(queue_.front());
  queue_.pop_front();
  copy_ = 0;
  at_ = 0;
  return true;
}

bool Lane::has_piece() {
  if (!take_command()) return false;
  if (command_->issued) copy_ = command_->copies.size();
  while (copy_ < command_->copies.size() && at_ >= command_->copies[copy_].bytes.bytes()) {
    ++copy_;
    at_ = 0;
  }
  return true;
}

bool Lane::next_needs_buffer() {
  return copy_ < command_->copies.size() && command_->copies[copy_].route == Route::ring;
}

std::int64_t Lane::piece_bytes(const ChunkCopy& copy) const {
  return copy.route == Route::ring ? ring_.buffer_bytes() : copy.bytes.bytes();
}

std::unique_ptr<Piece> Lane::next_piece() {
  auto piece = std::make_unique<Piece>();
  piece->command = command_;
  if (copy_ == command_->copies.size()) {
    command_ = nullptr;
    return piece;
  }
  const ChunkCopy& copy = command_->copies[copy_];
  piece->copy = &copy;
  piece->begin = at_;
  piece->end = std::min(at_ + piece_bytes(copy), copy.bytes.bytes());
  at_ = piece->end;
  return piece;
}

void Lane::issue_waits(const Command& command) {
  for (int event : command.waits) {
    if (!driver_.wait(stream(), event)) fail(driver_.error());
  }
  events_.begun(command);
}

void Lane::issue(const Command& command) {
  issue_waits(command);
  for (const ChunkCopy& copy : command.copies) copy_now(command, copy);
  driver_.record(stream(), event_of(command.set, end_mark()));
}

void Lane::copy_now(const Command& command, const ChunkCopy& copy) {
  if (copy.route == Route::pageable && copy.mapping != Mapping::anonymous) return copy_file(command, copy);
  copy_direct(copy);
}

// Pages of a file, by way of memory of our own: where the file has ended our copy can be left, the driver's cannot.
void Lane::copy_file(const Command& command, const ChunkCopy& copy) {
  const std::int64_t bytes = copy.bytes.bytes();
  const int end = event_of(command.set, end_mark());
  const std::unique_ptr<char[]> piece(new (std::nothrow) char[static_cast<std::size_t>(std::min(bytes, kFilePiece))]);
  if (piece == nullptr) return fail("out of memory for a piece of a file");
  for (std::int64_t at = 0; at < bytes && !events_.failed(); at += kFilePiece) {
    const std::int64_t size = std::min(kFilePiece, bytes - at);
    char* const dense = copy.bytes.dense + at;
    const bool in = direction_ == Direction::in;
    if (in && !copy_guarded(direction_, copy.bytes, at, at + size, piece.get())) {
      return fail("a file ended while it was read");
    }
    const DeviceCopy moved =
        in ? DeviceCopy{dense, piece.get(), size, 1, size, size} : DeviceCopy{piece.get(), dense, size, 1, size, size};
    // Waited for in both directions: the piece is used again, and freed.
    const bool done = driver_.copy(stream(), moved) && driver_.record(stream(), end) && driver_.synchronize(end);
    if (!done) return fail(driver_.error());
    if (!in && !copy_guarded(direction_, copy.bytes, at, at + size, piece.get())) {
      return fail("a file ended while it was written");
    }
  }
}

// Rows of the innermost outer dimension in one call; those outside of it one after another.
void Lane::copy_direct(const ChunkCopy& copy) {
  if (events_.failed()) return;
  const StridedCopy& bytes = copy.bytes;
  const std::int64_t rows = bytes.rank == 0 ? 1 : bytes.extent[bytes.rank - 1];
  const std::int64_t pitch = bytes.rank == 0 ? bytes.run : bytes.stride[bytes.rank - 1];
  const std::int64_t planes = rows == 0 ? 0 : bytes.rows() / rows;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    char* host = bytes.host;
    std::int64_t rest = plane;
    for (int d = bytes.rank - 1; d-- > 0;) {
      host += rest % bytes.extent[d] * bytes.stride[d];
      rest /= bytes.extent[d];
    }
    char* const dense = bytes.dense + plane * rows * bytes.run;
    // CUDA's copy of rows takes pitches from the row's length up to kMaxPitch; expanded and very wide rows go one by
    // one.
    const bool as_rows = rows == 1 || (pitch >= bytes.run && pitch <= kMaxPitch);
    const std::int64_t step = as_rows ? rows : 1;
    for (std::int64_t row = 0; row < rows; row += step) {
      char* const near = host + row * pitch;
      char* const far = dense + row * bytes.run;
      const DeviceCopy copies = direction_ == Direction::in ? DeviceCopy{far, near, bytes.run, step, bytes.run, pitch}
                                                            : DeviceCopy{near, far, bytes.run, step, pitch, bytes.run};
      if (!driver_.copy(stream(), copies)) return fail(driver_.error());
    }
  }
}

void Lane::fail(const std::string& text) { events_.fail(text); }

}  // namespace sluice::transfer
