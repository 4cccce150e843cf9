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

// What plans decide by, a row an architecture.
struct LongFilterPolicy {
  int compute_capability;

  int least_taps;          // fewer are a copy's work for the depthwise kernels
  long long most_reach;    // positions from the first tap to the last: more leave a multiprocessor few warps
  long long least_length;  // shorter results leave the tiles of a group nearly empty
};

inline constexpr LongFilterPolicy kLongFilterPolicies[] = {
    {
        // One NVIDIA H200, bfloat16, against the fastest depthwise schedule. 8 x 768 x 8192: 97 and 92 us with 7 taps,
        // 97 and 182 with 11, 361 and 1879 with 512. Float16, 31 taps: 27 and 63 us at 16 x 512 x 1000, 97 and 116 at
        // 64 x 1024 x 77, where torch takes 77; 9 taps at 256 x 512 x 33: 165 and 81. In between nothing was measured.
        .compute_capability = 90,
        .least_taps = 8,
        .most_reach = 1024,
        .least_length = 192,
    },
};

}  // namespace sluice
