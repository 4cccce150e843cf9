#include "kernels/transfer/staging_pool.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "kernels/transfer/bus_guard.h"
#include "kernels/transfer/numa.h"

namespace sluice::transfer {
namespace {

// Large against the microseconds of a hand-over, small against a packet's share per thread.
constexpr std::int64_t kSlice = 512 << 10;
constexpr std::int64_t kSmallestSlice = 64 << 10;

struct CopyRange {
  Direction direction;
  const StridedCopy& copy;
  std::int64_t begin, end;
  char* packed;
};

void copy_range(void* context) {
  const CopyRange& range = *static_cast<const CopyRange*>(context);
  if (range.direction == Direction::in) {
    gather(range.copy, range.begin, range.end, range.packed);
  } else {
    scatter(range.copy, range.begin, range.end, range.packed);
  }
}

}  // namespace

bool copy_guarded(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed) {
  CopyRange range{direction, copy, begin, end, packed};
  return guarded(copy_range, &range);
}

void StagingPool::start(int threads, int node) {
  threads_.reserve(static_cast<std::size_t>(std::max(threads, 1)));
  for (int i = 0; i < std::max(threads, 1); ++i) {
    try {
      threads_.emplace_back([this, node] { run(node); });
    } catch (const std::system_error&) {  // a limit on threads, no memory for a stack: the others suffice
      if (threads_.empty()) throw;
      return;
    }
  }
}

StagingPool::~StagingPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void StagingPool::submit(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end,
                         char* packed, Mapping mapping, Batch& batch) {
  if (begin >= end) return;
  const std::int64_t bytes = end - begin;
  const std::int64_t even = (bytes + threads() - 1) / threads();
  // Multiples of a cache line, so that no two threads write the same line of the packed side.
  const std::int64_t size = (std::clamp(even, kSmallestSlice, kSlice) + 63) / 64 * 64;
  batch.left_.fetch_add(static_cast<int>((bytes + size - 1) / size), std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    for (std::int64_t at = begin; at < end; at += size) {
      slices_.push_back({direction, &copy, at, std::min(at + size, end), packed + (at - begin), mapping, &batch});
    }
  }
  work_.notify_all();
}

void StagingPool::wait(const Batch& batch) {
  if (batch.done()) return;
  std::unique_lock lock(mutex_);
  batch_done_.wait(lock, [&] { return batch.done(); });
}

void StagingPool::run(int node) {
  pthread_setname_np(pthread_self(), "sluice-staging");
  bind_thread(node);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || !slices_.empty(); });
    if (slices_.empty()) return;
    Slice slice = slices_.front();
    slices_.pop_front();
    lock.unlock();
    if (!copy_guarded(slice.direction, *slice.copy, slice.begin, slice.end, slice.packed)) {
      slice.batch->lost_.store(true, std::memory_order_relaxed);
    }
    if (slice.copy->rank == 0) drop_behind(slice.copy->host + slice.begin, slice.end - slice.begin, slice.mapping);
    // The waiting thread may free the batch after this.
    const bool last = slice.batch->left_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    lock.lock();
    if (last) batch_done_.notify_all();
  }
}

}  // namespace sluice::transfer
