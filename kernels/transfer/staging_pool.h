// Threads that copy between pageable memory and packed buffers. Packets of both directions share one queue and are
// divided into slices, so that no thread waits for the others at the end of a packet.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/transfer/mapping.h"
#include "kernels/transfer/strided_copy.h"

namespace sluice::transfer {

// The slices of a packet that are not copied yet. It must live until done() and may be destroyed then: no thread
// touches it after counting the last slice. Waiting is therefore on the pool's condition variable, not on the batch's.
class Batch {
 public:
  bool done() const { return left_.load(std::memory_order_acquire) == 0; }
  // Whether memory was gone when it was read or written. Valid once done().
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  friend class StagingPool;
  std::atomic<int> left_ = 0;
  std::atomic<bool> lost_ = false;
};

enum class Direction { in, out };  // host to device, device to host

// Copies packed bytes [begin, end) of `copy` to or from `packed`; false if a file no longer has the memory.
bool copy_guarded(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed);

class StagingPool {
 public:
  StagingPool() = default;
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // Starts up to `threads` (at least 1) threads, near `node` unless it is -1. Throws only if the system allows none.
  void start(int threads, int node);
  int threads() const { return static_cast<int>(threads_.size()); }
  // Copies packed bytes [begin, end) of `copy` to or from `packed`; `copy` and `batch` must outlive the batch's work.
  void submit(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed,
              Mapping mapping, Batch& batch);
  void wait(const Batch& batch);

 private:
  struct Slice {
    Direction direction;
    const StridedCopy* copy;
    std::int64_t begin, end;
    char* packed;
    Mapping mapping;
    Batch* batch;
  };
  void run(int node);

  std::mutex mutex_;
  std::condition_variable work_, batch_done_;
  std::deque<Slice> slices_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::transfer
