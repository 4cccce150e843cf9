// Sizes of the Fourier method's kernels, and from where on it is taken.
#pragma once

#include "kernels/conv1d/fourier/places.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What the kernels are compiled with.

// Blocks that a multiprocessor's registers hold, by the launch bounds: a filter in parts has sums beside the points.
inline constexpr int kFourierBlocksOfOne = 3;
inline constexpr int kFourierBlocksInParts = 2;

// A thread's points of a segment go through a chain as slices of this width.
inline constexpr int kFourierChainWidth = 8;
inline constexpr int kFourierSlices = kFourierRadix / kFourierChainWidth;

// The exchange, and a block's largest magnitudes: two of a warp.
inline constexpr int kFourierSharedBytes =
    kExchangePlaces * static_cast<int>(sizeof(Complex)) + 2 * kFourierThreads / 32 * static_cast<int>(sizeof(unsigned));

// Segments begin at multiples of so many outputs of their row, so that stores of float32 rows that begin at a line of
// 128 bytes are whole lines.
inline constexpr int kSegmentMultiple = 32;

// What plans decide by, a row an architecture.
struct FourierPolicy {
  int compute_capability;

  ByElement least_taps;
  // Instructions that a warp issues for a pair of segments: with a filter in one part; in several, with each and once.
  int whole_slots, part_slots, pair_slots;
  // By how much longer than its instructions' issue a transform takes.
  double slack;
  long long most_workspace;  // bytes
};

inline constexpr FourierPolicy kFourierPolicies[] = {
    {
        // Instructions are counted in the code for compute capability 9.0 (docs/measurements/fourier.md). One NVIDIA
        // H200, 8 x 768 x 8192: 240 us with 192 to 512 taps of float32 (265 by these numbers).
        .compute_capability = 90,
        .least_taps = {.half = 512, .wider = 64},
        .whole_slots = 2350,
        .part_slots = 1350,
        .pair_slots = 1230,
        .slack = 1.6,
        .most_workspace = 1LL << 30,
    },
};

}  // namespace sluice
