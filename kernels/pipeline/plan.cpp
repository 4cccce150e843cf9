#include "kernels/pipeline/plan.h"

#include "kernels/common/int_math.h"

namespace sluice {

namespace {
// The driver keeps this much of each block's shared memory for itself (compute capability 8.0 and on).
constexpr int kReservedPerBlock = 1024;
}  // namespace

RingShape shape_ring(int stage_bytes, int fixed_bytes, int threads, int requested, const DeviceProperties& device) {
  const int budget = device.shared_memory_per_block - fixed_bytes;
  const int fits = min_of(budget / stage_bytes, kMaxDepth);
  if (budget < 0 || fits < 1 || requested > fits) return {0, 0};
  // Four blocks hide each other's waits; more would only shrink each one's share of the memory.
  const int by_threads = max_of(1, device.threads_per_multiprocessor / threads);
  const int wanted_blocks = min_of(by_threads, 4);
  int depth = requested;
  if (depth == 0) {
    depth = 1 + ceil_div(kBytesInFlight, wanted_blocks * stage_bytes);
    depth = max_of(2, min_of(depth, fits));
    depth = min_of(depth, fits);
  }
  const int block_bytes = fixed_bytes + depth * stage_bytes + kReservedPerBlock;
  const int blocks = min_of(by_threads, device.shared_memory_per_multiprocessor / block_bytes);
  return {depth, max_of(1, blocks)};
}

}  // namespace sluice
