// Sizes of the kernel for few output channels, and from where on it is taken.
#pragma once

#include "kernels/conv1d/few_outputs/places.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What the kernel is compiled with.

inline constexpr int kFewOutputsThreads = 256;
inline constexpr int kFewOutputsPositions = kFewOutputsThreads / 32 * kWarpPositions;  // of a tile and around it
static_assert(kFewOutputsPositions < kSumPitch);

// Columns that a warp's registers have sums for.
inline constexpr int kFewColumns = 16, kMostColumns = 32;
// Blocks that a multiprocessor's registers hold, by the launch bounds: for each of them 32 KiB of loads are in flight.
SLUICE_HOST_DEVICE constexpr int few_outputs_blocks(int columns) { return columns == kFewColumns ? 3 : 2; }

// What a chain takes at a time: `pre` a word, `post` neighbouring positions of an output channel.
inline constexpr int kFewOutputsPreWidth = 8, kFewOutputsPostWidth = 2;

// What plans decide by, a row an architecture.
struct FewOutputsPolicy {
  int compute_capability;

  long long most_channels;    // of the output: more fill rows of the dense kernel's tiles
  int least_input_channels;   // fewer are the dense kernel's, whose products are mostly zeros then as well
  long long most_reach;       // positions from the first tap to the last, which each tile reads beside its own
  long long least_positions;  // of all results: fewer are too few tiles for the weights that each block reads
  int least_tile;             // outputs of a tile
};

inline constexpr FewOutputsPolicy kFewOutputsPolicies[] = {
    {
        // Predicted; what it takes within them is measured: half of what conv2d does (docs/measurements/dense.md).
        .compute_capability = 90,
        .most_channels = 4,
        .least_input_channels = 8,
        .most_reach = 193,
        .least_positions = 16384,
        .least_tile = 64,
    },
};

}  // namespace sluice
