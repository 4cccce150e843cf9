// The reasons of depthwise plans, in a sentence each.
#pragma once

#include "kernels/conv1d/depthwise/depthwise.h"
#include "kernels/pipeline/plan.h"

namespace sluice {

inline const char* direct_reason(const ScheduleRequest& request, DepthwiseKernel kernel) {
  if (takes_few_taps(kernel)) {
    return request.automatic ? "auto: a few taps cost less than the copy that they ride on, and many loads in flight a "
                               "thread need no ring"
                             : "forced: vectors through registers, all loads of a thread in flight at once";
  }
  if (takes_windows(kernel)) {
    return takes_channels(kernel)
               ? "auto: each thread keeps a window of positions in registers, so that taps and inputs are read once "
                 "for many products"
               : "auto: each thread keeps a window of its row in registers, so that nine of ten instructions are "
                 "products";
  }
  if (kernel == DepthwiseKernel::plain_rows && request.automatic) {
    return "auto: words of positions through registers, shifted to where the output's words begin";
  }
  if (!request.automatic) return "forced: vectors through registers, halos through the L1 cache";
  return takes_channels(kernel)
             ? "auto: vectors of channels through registers; neighbouring positions meet in the L1 cache"
             : "auto: vectors of positions through registers; a window's halo comes from the L1 cache";
}

inline const char* auto_ring_reason(Schedule schedule, DepthwiseKernel kernel) {
  if (takes_channels(kernel))
    return "auto: a ring, because each tap uses every input again, and shared memory is nearer than the L1 cache's "
           "misses";
  return schedule == Schedule::thread_scope
             ? "auto: a ring, whose copies keep more bytes in flight where there are few tiles"
             : "auto: a ring, whose own warp fetches while the others sum many taps";
}

}  // namespace sluice
