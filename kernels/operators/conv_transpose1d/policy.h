// The limits by which a transposed convolution's kernels are chosen.
#pragma once

namespace sluice {

// Components of a depthwise convolution, each a launch, or on the CPU a loop over torch's threads.
inline constexpr long long kMostComponents = 16;

// Results that aten's depthwise kernels for half types finish in the time of a launch, 5.7 us: 1.6, 4.6 and 40 million
// took 34, 93 and 574 us followed by an activation (H100, suite `random`).
inline constexpr long long kResultsOfLaunch = 370'000;
// Launches of aten that the rule counts: its convolution, and the pass of `post`.
inline constexpr long long kAtenLaunches = 2;

// Whether a channels-first result is stored as contiguous spans of consecutive components. Others are stored as rows of
// channels and transposed.
constexpr bool interleaves_positions(long long stride, long long dilation) {
  return dilation == 1 && (stride & (stride - 1)) == 0;
}

}  // namespace sluice
