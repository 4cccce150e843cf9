// Sizes of the long filters' kernels, and the limits within which plans choose them.
#pragma once

#include "kernels/operators/conv1d/long_filter/fragment_layout.h"
#include "kernels/operators/conv1d/long_filter/long_filter.h"
#include "kernels/operators/conv1d/tap_work.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// Compiled into the kernels.

inline constexpr int kLongFilterThreads = 128;
inline constexpr int kLongFilterWarps = kLongFilterThreads / 32;
// Resident blocks of an SM, by the launch bounds.
constexpr int long_filter_blocks(LongFilterKernel which) {
  return which == LongFilterKernel::long_filter_many_steps ? 4 : 5;
}

// Maximum outputs of a warp's segment: four warp tiles for each halo.
inline constexpr int kLongFilterSegment = 1024;

// Shared memory for a team's taps: both copies, and one more step, which is loaded ahead and not used.
SLUICE_HOST_DEVICE constexpr int tap_bytes(int steps) { return round_up(2 * tap_copy_bytes(steps) + 32, 128); }

// Channels-last: a warp's memory beside the ring, for its channels' transposed input and taps.
SLUICE_HOST_DEVICE constexpr int transposed_bytes(int positions, int steps) {
  return kVectorOutputs * (transposed_row_bytes(positions) + 2 * tap_copy_bytes(steps));
}

// The limits of plans, a row an architecture.
struct LongFilterPolicy {
  int compute_capability;

  // Channels-first.
  int least_taps;          // taps: with fewer, the depthwise kernels take no longer than a copy
  long long most_reach;    // positions from the first tap to the last: more do not fit
  long long least_length;  // positions: shorter results leave warp tiles nearly empty

  // Channels-last, where words of channels are copied and where they are gathered.
  int least_channel_taps, least_gathered_channel_taps;
  long long most_channel_reach;
  long long least_channels, least_channel_length;

  TapWork work;
};

inline constexpr LongFilterPolicy kLongFilterPolicies[] = {
    {
        // One NVIDIA H200, against the fastest depthwise kernel. 8 x 768 x 8192, bfloat16: 66 us, and 118 with 5 taps;
        // 64 x 1024 x 77: 53 us; 256 x 512 x 33: 92 with 16 taps, and 30 with 15 in windows. Channels last, 8 x 1024 x
        // 4096: 81 with 16 taps and 87 with 12 in windows; with 1023 channels 250 and 112, and 350 with 128. Rows, 8 x
        // 768 x 8192: 104 with 128 taps and 229 with 511.
        .compute_capability = 90,
        .least_taps = 5,
        .most_reach = 4096,
        .least_length = 128,
        .least_channel_taps = 12,
        .least_gathered_channel_taps = 129,
        .most_channel_reach = 512,
        .least_channels = 16,
        .least_channel_length = 48,
        .work = {.slots = 0.25, .fixed_taps = 176},
    },
};

}  // namespace sluice
