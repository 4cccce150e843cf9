// Sizes of the kernel for few output channels, and the limits within which plans choose it.
#pragma once

#include "kernels/operators/conv1d/few_outputs/fragment_layout.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// Compiled into the kernel.

inline constexpr int kFewOutputsThreads = 256;
inline constexpr int kFewOutputsPositions = kFewOutputsThreads / 32 * kWarpPositions;  // positions with a halo
static_assert(kFewOutputsPositions < kSumPitch);

// Columns that a warp's registers have sums for.
inline constexpr int kFewColumns = 16, kMostColumns = 32;
// Resident blocks of an SM, by the launch bounds; each has 32 KiB of loads in flight.
SLUICE_HOST_DEVICE constexpr int few_outputs_blocks(int columns) { return columns == kFewColumns ? 3 : 2; }

// Values that a chain takes at a time: `pre` a word, `post` adjacent positions of an output channel.
inline constexpr int kFewOutputsPreWidth = 8, kFewOutputsPostWidth = 2;

// The limits of plans, a row an architecture.
struct FewOutputsPolicy {
  int compute_capability;

  long long most_channels;    // output channels: more fill rows of the dense kernel's tiles
  int least_input_channels;   // input channels: with fewer, the dense kernel, whose products are mostly zeros as well
  long long most_reach;       // positions from the first tap to the last: each tile's halo
  long long least_positions;  // positions of all results: fewer tiles do not repay the weights that each block reads
  int least_tile;             // outputs of a tile
};

inline constexpr FewOutputsPolicy kFewOutputsPolicies[] = {
    {
        // Predicted. Within them it was measured at half of conv2d's time (docs/measurements/dense.md).
        .compute_capability = 90,
        .most_channels = 4,
        .least_input_channels = 8,
        .most_reach = 193,
        .least_positions = 16384,
        .least_tile = 64,
    },
};

}  // namespace sluice
