// Threads that copy between pageable memory and dense buffers. Pieces of both directions go through one queue, cut into
// slices, so that no thread waits for the others at the end of a piece.
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

// What a piece waits for: the slices of it that are not copied yet. It must live until it is done, and not a moment
// longer: no thread touches it after the one that counts its last slice. So who waits does it on the pool, which wakes
// it.
class Batch {
 public:
  bool done() const { return left_.load(std::memory_order_acquire) == 0; }
  // Whether memory was gone when it was read or written. Only once it is done.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  friend class StagingPool;
  std::atomic<int> left_ = 0;
  std::atomic<bool> lost_ = false;
};

enum class Direction { in, out };  // host to device, device to host

// Dense bytes [begin, end) of `copy` to or from `dense`; false where a file no longer has the memory.
bool copy_guarded(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* dense);

class StagingPool {
 public:
  StagingPool() = default;
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // `threads` of at least 1, fewer where the system has no more, near `node` where it is not -1. Throws where it has
  // none at all.
  void start(int threads, int node);
  int threads() const { return static_cast<int>(threads_.size()); }
  // Copies dense bytes [begin, end) of `copy` to or from `dense`; `copy` and `batch` must live until the batch is done.
  void submit(Direction direction, const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* dense,
              Mapping mapping, Batch& batch);
  void wait(const Batch& batch);

 private:
  struct Slice {
    Direction direction;
    const StridedCopy* copy;
    std::int64_t begin, end;
    char* dense;
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
