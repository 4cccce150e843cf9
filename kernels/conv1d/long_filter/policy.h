// Sizes of the long filters' kernel, and from where on it is taken.
#pragma once

#include "kernels/conv1d/long_filter/places.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What the kernel is compiled with.

inline constexpr int kLongFilterThreads = 128;  // warps that share nothing
inline constexpr int kLongFilterWarps = kLongFilterThreads / 32;
inline constexpr int kLongFilterBlocks = 5;  // that a multiprocessor's registers hold, by the launch bounds

inline constexpr int kLongFilterSegment = 1024;  // outputs, at most: four groups for each time that a halo is fetched

// A step's taps in the order of the lanes' registers: 8 bytes a lane.
inline constexpr int kStepBytes = 32 * 8;

// What plans decide by, a row an architecture. ESTIMATES, but for what the prototypes of the method took: nothing of
// the kernel itself was measured yet.
struct LongFilterPolicy {
  int compute_capability;

  int least_taps;          // fewer are a copy's work for the depthwise kernels
  long long most_reach;    // positions from the first tap to the last: more leave a multiprocessor few warps
  long long least_length;  // shorter results leave the tiles of a group nearly empty
};

inline constexpr LongFilterPolicy kLongFilterPolicies[] = {
    {
        .compute_capability = 90,
        .least_taps = 5,
        .most_reach = 1024,
        .least_length = 32,
    },
};

}  // namespace sluice
