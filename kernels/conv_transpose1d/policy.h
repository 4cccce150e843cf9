// By what a transposed convolution's way is decided.
#pragma once

namespace sluice {

// A launch each, or a walk through torch's threads.
inline constexpr long long kMostPhases = 16;

// Results that aten's depthwise kernels for half types finish in the time of a launch, 5.7 us: 1.6, 4.6 and 40 million
// took 34, 93 and 574 us with an activation behind them (H100, suite `random`).
inline constexpr long long kResultsOfLaunch = 370'000;
// Launches of aten that the rule counts: its convolution, and the pass of the chain behind it.
inline constexpr long long kAtenLaunches = 2;

// Whether a result whose positions lie side by side is stored as runs of neighbouring phases. Others are stored as rows
// of channels and turned.
constexpr bool interleaves_positions(long long stride, long long dilation) {
  return dilation == 1 && (stride & (stride - 1)) == 0;
}

}  // namespace sluice
