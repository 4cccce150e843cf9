// The reasons of depthwise plans, in a sentence each.
#pragma once

#include "kernels/operators/conv1d/depthwise/depthwise.h"
#include "kernels/shared/pipeline/plan.h"

namespace sluice {

inline const char* direct_reason(const ScheduleRequest& request, DepthwiseKernel kernel) {
  if (is_of(kernel, DepthwiseFamily::few_taps)) {
    return request.automatic ? "auto: a few taps cost less than the copy, and each thread has enough loads in flight "
                               "without a ring"
                             : "forced: vectors through registers, all loads of a thread in flight at once";
  }
  if (is_of(kernel, DepthwiseFamily::windows)) {
    return takes_channels(kernel)
               ? "auto: each thread keeps a window of positions in registers, so each tap and input is read once "
                 "for many products"
               : "auto: each thread keeps a window of its row in registers, so nine of ten instructions are "
                 "products";
  }
  if (is_of(kernel, DepthwiseFamily::plain) && request.automatic) {
    return "auto: words of positions through registers, shifted to where the output's words begin";
  }
  if (!request.automatic) return "forced: vectors through registers, halos through the L1 cache";
  return takes_channels(kernel)
             ? "auto: vectors of channels through registers; adjacent positions share inputs through the L1 cache"
             : "auto: vectors of positions through registers; a window's halo comes from the L1 cache";
}

inline const char* auto_ring_reason(Schedule schedule, DepthwiseKernel kernel) {
  if (takes_channels(kernel))
    return "auto: a ring, because each tap reads every input again, and shared memory has no cache misses";
  return schedule == Schedule::thread_scope
             ? "auto: a ring, because its copies keep more bytes in flight when there are few tiles"
             : "auto: a ring, because one warp fetches while the others sum many taps";
}

}  // namespace sluice
