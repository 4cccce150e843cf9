// Sizes of the Fourier method's kernels, and the limits within which plans choose it.
#pragma once

#include "kernels/operators/conv1d/fourier/workspace_layout.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// Compiled into the kernels.

// Resident blocks of an SM, by the launch bounds: partitioned filters have sums beside the points.
inline constexpr int kFourierBlocksOfOne = 3;
inline constexpr int kFourierBlocksPartitioned = 2;

// A thread's points of a segment go through a chain as slices of this width.
inline constexpr int kFourierChainWidth = 8;
inline constexpr int kFourierSlices = kFourierRadix / kFourierChainWidth;

// The exchange, and a block's largest magnitudes: two of a warp.
inline constexpr int kFourierSharedBytes =
    kExchangePlaces * static_cast<int>(sizeof(Complex)) + 2 * kFourierThreads / 32 * static_cast<int>(sizeof(unsigned));

// Segments begin at multiples of 32 outputs, so that stores to 128-byte aligned float32 rows are whole lines.
inline constexpr int kSegmentMultiple = 32;

// The limits of plans, a row an architecture.
struct FourierPolicy {
  int compute_capability;

  ByElement least_taps;
  // Instructions that a warp issues for a pair of segments: of a whole filter; for each partition; once for all.
  int whole_issue_slots, partition_slots, pair_issue_slots;
  // Measured time over issue-bound time.
  double slack;
  long long most_workspace;  // bytes
};

inline constexpr FourierPolicy kFourierPolicies[] = {
    {
        // Instructions are counted in the code for compute capability 9.0 (docs/measurements/fourier.md). One NVIDIA
        // H200, 8 x 768 x 8192: 240 us with 192 to 512 taps of float32 (265 by these numbers).
        .compute_capability = 90,
        .least_taps = {.half = 512, .wider = 64},
        .whole_issue_slots = 2350,
        .partition_slots = 1350,
        .pair_issue_slots = 1230,
        .slack = 1.6,
        .most_workspace = 1LL << 30,
    },
};

}  // namespace sluice
