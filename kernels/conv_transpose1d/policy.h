// By what a transposed convolution's way is decided.
#pragma once

namespace sluice {

// A launch each, or a walk through torch's threads.
inline constexpr long long kMostPhases = 16;

// Whether a result whose positions lie side by side is stored as runs of neighbouring phases. Others are stored as rows
// of channels and turned.
constexpr bool interleaves_positions(long long stride, long long dilation) {
  return dilation == 1 && (stride & (stride - 1)) == 0;
}

}  // namespace sluice
