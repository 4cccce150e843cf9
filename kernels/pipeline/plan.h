// How a kernel will run, decided on the host before anything is launched.
//
// A plan is a pure function of the problem, the request and the device: it is made, printed and tested
// on machines that have no GPU. Each op's plan.cpp fills one in; the parts they share are here.
#pragma once

#include "kernels/common/device_properties.h"
#include "kernels/pipeline/schedule.h"

namespace sluice {

struct Plan {
  const char* method = "";  // the way the result is computed, which has a folder or is torch's: "depthwise", "aten"
  const char* kernel = "";  // the one that runs
  Schedule schedule = Schedule::direct;
  int depth = 1;                  // stages in flight; 1 where there is no ring
  int tile = 0;                   // outputs of one tile
  int threads = 0;                // of one block
  int shared_memory = 0;          // bytes of dynamic shared memory a block
  long long workspace_bytes = 0;  // of device memory that the kernels need beside inputs and output
  // Bytes at whose multiples the kernel's vectors lie in global memory, and bytes of one load or copy from there, where
  // the input's elements are side by side. What lies apart or at an edge goes element by element.
  int alignment = 0, copy_width = 0;
  // Blocks that a multiprocessor holds at once: a ring's grid is made of so many, other kernels have room for them at
  // least. 0 where that is left to the linker, which knows the chain's registers.
  int resident_blocks = 0;
  long long grid = 0;       // blocks
  const char* reason = "";  // a sentence for the user
};

// Bytes that a multiprocessor has to have under way to cover the latency of device memory. 48 KiB is
// Little's law for an H200 (4.8 TB/s, about 1.3 us); smaller devices need less, but not so little that
// a smaller number wins anything there.
inline constexpr int kBytesInFlight = 48 * 1024;

// Blocks of a ring that one multiprocessor holds at once, and the stages of each ring.
struct RingShape {
  int depth;
  int blocks;  // a multiprocessor
};

// `stage_bytes` is what one stage of the ring takes, `resident_blocks` how many blocks of the kernel a multiprocessor's
// registers hold, `tiles` how many all blocks share. A depth of 0 comes back where the request cannot be met: not even
// one stage fits, or not as many as were asked for.
RingShape shape_ring(int stage_bytes, int resident_blocks, long long tiles, const ScheduleRequest& request,
                     const DeviceProperties& device);

// Bytes of one copy into a ring whose stages have rows of `row_bytes`: bulk copies move a whole row, others a word.
int ring_copy_width(Schedule schedule, int row_bytes, const DeviceProperties& device);

// Blocks of a plan without a ring that a multiprocessor holds: `bound`, which its registers have room for by the
// kernel's launch bounds, or as many as its threads and its shared memory have.
int resident_blocks(const Plan& plan, int bound, const DeviceProperties& device);

// Why a ring of this schedule cannot run, or null: by the device, and by the code that the library has for it.
const char* refusal(Schedule schedule, const DeviceProperties& device);

// What a plan says of a ring that was asked for.
const char* ring_reason(const ScheduleRequest& request);

// Makes `plan` one that cannot run: `threads` is 0, and `reason` names the rule.
void refuse(Plan& plan, const char* reason);

inline constexpr const char* kNoElements = "the result must have at least one element";

// Refuses a plan that no launch could run, whatever its kernel: one of no blocks, or of more than a grid has room for.
void check_grid(Plan& plan);

}  // namespace sluice
