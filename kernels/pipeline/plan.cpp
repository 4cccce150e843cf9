#include "kernels/pipeline/plan.h"

#include "kernels/common/int_math.h"

namespace sluice {

namespace {
// The driver keeps this much of each block's shared memory for itself (compute capability 8.0 and on).
constexpr int kReservedPerBlock = 1024;
}  // namespace

RingShape shape_ring(int stage_bytes, int resident_blocks, const ScheduleRequest& request, const DeviceProperties& device) {
  const int fits = min_of(device.shared_memory_per_block / stage_bytes, kMaxDepth);
  const int fixed = fixed_depth(request.schedule), requested = fixed > 0 ? fixed : request.depth;
  if (fits < 1 || requested > fits) return {0, 0};
  int depth = requested;
  if (depth == 0) {
    depth = 1 + ceil_div(kBytesInFlight, resident_blocks * stage_bytes);
    depth = min_of(max_of(2, depth), fits);
  }
  // One resident wave: the blocks share the tiles out among them, so one that has to wait for another to end is late.
  const int by_memory = device.shared_memory_per_multiprocessor / (depth * stage_bytes + kReservedPerBlock);
  return {depth, max_of(1, min_of(resident_blocks, by_memory))};
}

const char* refusal(Schedule schedule, const DeviceProperties& device) {
  if (device.compute_capability >= least_capability(schedule)) return nullptr;
  return "bulk copies need compute capability 9.0";
}

const char* ring_reason(const ScheduleRequest& request) {
  if (fixed_depth(request.schedule) > 0)
    return "forced: a ring of tiles in shared memory, of the depth that the schedule is made for";
  return request.depth > 0 ? "forced: a ring of tiles in shared memory, at the depth that was asked for"
                           : "forced: a ring of tiles in shared memory, deep enough for 48 KiB in flight a multiprocessor";
}

}  // namespace sluice
