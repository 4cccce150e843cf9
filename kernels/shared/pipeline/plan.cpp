#include "kernels/shared/pipeline/plan.h"

#include "kernels/shared/common/architectures.h"
#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

namespace {
// The driver reserves this much of each block's shared memory (compute capability 8.0 and later).
constexpr int kReservedPerBlock = 1024;
constexpr int kBulkCopyCapability = least_capability(Schedule::bulk);
}  // namespace

RingShape shape_ring(int stage_bytes, int resident_blocks, long long tiles, const ScheduleRequest& request,
                     const DeviceProperties& device) {
  const int fits = min_of(most_dynamic_shared_memory(device) / stage_bytes, kMaxDepth);
  const int fixed = fixed_depth(request.schedule), requested = fixed > 0 ? fixed : request.depth;
  if (fits < 1 || requested > fits) return {0, 0};
  // One resident wave: the blocks divide the tiles among them, so a block that waits for another to end is late.
  const auto blocks_at = [&](int depth) {
    const int block_bytes = depth * stage_bytes + traits_of(request.schedule).storage_bytes + kReservedPerBlock;
    return max_of(1, min_of(resident_blocks, device.shared_memory_per_multiprocessor / block_bytes));
  };
  int depth = requested;
  if (depth == 0) {
    depth = 1 + ceil_div(kBytesInFlight, resident_blocks * stage_bytes);
    depth = min_of(max_of(2, depth), fits);
    // At most as many stages as a block has tiles: more would never be filled.
    const auto tiles_of_stages = [&](int stages) {
      return static_cast<long long>(stages) * device.multiprocessors * blocks_at(depth);
    };
    while (depth > 1 && tiles <= tiles_of_stages(depth - 1)) --depth;
  }
  return {depth, blocks_at(depth)};
}

int ring_copy_width(Schedule schedule, int row_bytes, const DeviceProperties& device) {
  // cuda::memcpy_async to a barrier is also a bulk copy if the code has them (barrier_pipe.cuh).
  const bool bulk = schedule == Schedule::bulk || (schedule == Schedule::barrier &&
                                                   code_capability(device.compute_capability) >= kBulkCopyCapability);
  return bulk ? row_bytes : kWordBytes;
}

int resident_blocks(const Plan& plan, int bound, const DeviceProperties& device) {
  if (plan.threads == 0 || bound == 0) return 0;
  const int by_threads = device.threads_per_multiprocessor / plan.threads;
  const int by_memory = device.shared_memory_per_multiprocessor / (plan.shared_memory + kReservedPerBlock);
  return max_of(1, min_of(bound, min_of(by_threads, by_memory)));
}

const char* refusal(Schedule schedule, const DeviceProperties& device) {
  const int least = least_capability(schedule);
  if (device.compute_capability < least) return "bulk copies need compute capability 9.0";
  // Code for an older architecture, as PTX is, has no such copies, and would wait for them for ever.
  if (least > 0 && code_capability(device.compute_capability) < least) {
    return "bulk copies need code for compute capability 9.0 or newer; this device runs older code";
  }
  return nullptr;
}

const char* ring_reason(const ScheduleRequest& request) {
  if (fixed_depth(request.schedule) > 0)
    return "forced: a ring of tiles in shared memory, at the schedule's fixed depth";
  return request.depth > 0 ? "forced: a ring of tiles in shared memory, at the requested depth"
                           : "forced: a ring of tiles in shared memory, deep enough for 48 KiB in flight per "
                             "SM, but no deeper than the tiles of a block";
}

void refuse(Plan& plan, const char* reason) {
  plan.threads = 0;
  plan.reason = reason;
}

void check_grid(Plan& plan) {
  if (plan.threads == 0) return;
  if (plan.grid < 1) refuse(plan, kNoElements);
  if (plan.grid > kMaxGrid) refuse(plan, "the tiles of the result must fit into a grid of 2^31 - 1 blocks");
}

}  // namespace sluice
