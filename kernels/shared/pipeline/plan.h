// How a kernel will run, decided on the host before anything is launched.
//
// A plan is a pure function of the problem, the request and the device: it is made, printed and tested on machines
// without a GPU. Each op's plan.cpp makes one; shared helpers are here.
#pragma once

#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/pipeline/schedule.h"

namespace sluice {

struct Plan {
  const char* method = "";  // the method, which has a folder or is torch's: "depthwise", "aten"
  const char* kernel = "";  // its name
  Schedule schedule = Schedule::direct;
  int depth = 1;                  // stages in flight; 1 without a ring
  int tile = 0;                   // outputs of one tile
  int threads = 0;                // threads of one block
  int shared_memory = 0;          // bytes of dynamic shared memory per block
  long long workspace_bytes = 0;  // device memory that the kernels need in addition to inputs and output
  // The alignment in bytes of the kernel's vectors in global memory, and bytes of one load or copy of contiguous
  // elements. Strided elements and edges are copied one by one.
  int alignment = 0, copy_width = 0;
  // Resident blocks per SM: exact for rings, a lower bound otherwise. 0 if the linker decides, which knows the chain's
  // registers.
  int resident_blocks = 0;
  long long grid = 0;       // blocks
  const char* reason = "";  // a sentence for the user
};

// Bytes in flight per SM that cover the latency of device memory. 48 KiB is Little's law for an H200 (4.8 TB/s, about
// 1.3 us); smaller devices need less, but no smaller number gains anything there.
inline constexpr int kBytesInFlight = 48 * 1024;

// Resident blocks per SM of a ring, and the stages of each ring.
struct RingShape {
  int depth;
  int blocks;  // blocks per SM
};

// `stage_bytes`: of one stage of the ring; `resident_blocks`: per SM, by registers; `tiles`: of all blocks. The depth
// is 0 if the request cannot be met: not one stage fits, or fewer than requested.
RingShape shape_ring(int stage_bytes, int resident_blocks, long long tiles, const ScheduleRequest& request,
                     const DeviceProperties& device);

// Bytes of one copy into a ring whose stages have rows of `row_bytes`: bulk copies move a whole row, others a word.
int ring_copy_width(Schedule schedule, int row_bytes, const DeviceProperties& device);

// Resident blocks per SM of a plan without a ring: `bound`, by the registers of its launch bounds, or fewer by its
// threads and shared memory.
int resident_blocks(const Plan& plan, int bound, const DeviceProperties& device);

// Why a ring of this schedule cannot run, or null: by the device, and by the library's code for it.
const char* refusal(Schedule schedule, const DeviceProperties& device);

// The reason of a requested ring.
const char* ring_reason(const ScheduleRequest& request);

// Marks `plan` as one that cannot run: `threads` is 0, and `reason` names the rule.
void refuse(Plan& plan, const char* reason);

inline constexpr const char* kNoElements = "the result must have at least one element";

// Refuses a plan that cannot be launched, whatever its kernel: no blocks, or more than a grid can have.
void check_grid(Plan& plan);

}  // namespace sluice
