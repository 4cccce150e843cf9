// Sizes of the long filters' kernel, and from where on it is taken.
#pragma once

#include "kernels/conv1d/long_filter/long_filter.h"
#include "kernels/conv1d/long_filter/places.h"
#include "kernels/conv1d/tap_work.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What the kernel is compiled with.

inline constexpr int kLongFilterThreads = 128;
inline constexpr int kLongFilterWarps = kLongFilterThreads / 32;
// Blocks that a multiprocessor's registers hold, by the launch bounds.
constexpr int long_filter_blocks(LongFilterKernel which) { return which == LongFilterKernel::many_steps ? 4 : 5; }

// Outputs of a warp's segment, at most: four groups for each time that a halo is fetched.
inline constexpr int kLongFilterSegment = 1024;

// Shared memory for a team's taps: both copies, and a step's more, which are loaded ahead and not used.
SLUICE_HOST_DEVICE constexpr int tap_bytes(int steps) { return round_up(2 * tap_copy_bytes(steps) + 32, 128); }

// Channels last: what a warp has beside the ring, its channels' input turned and their taps.
SLUICE_HOST_DEVICE constexpr int turned_bytes(int positions, int steps) {
  return kVectorOutputs * (turned_row_bytes(positions) + 2 * tap_copy_bytes(steps));
}

// What plans decide by, a row an architecture.
struct LongFilterPolicy {
  int compute_capability;

  // Rows.
  int least_taps;          // fewer are a copy's work for the depthwise kernels
  long long most_reach;    // positions from the first tap to the last: more have no room
  long long least_length;  // shorter results leave the tiles of a group nearly empty

  // Channels last, where words of channels are copied and where they are gathered.
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
