// By what a transposed convolution's way is decided.
#pragma once

namespace sluice {

// A launch each, or a walk through torch's threads.
inline constexpr long long kMostPhases = 16;

// Whether positions lie side by side in the result, whose runs take phases and taps of neighbouring results. Results of
// other strides could be stored one by one: predicted to be slower than torch's convolution, not measured.
constexpr bool interleaves_positions(long long stride, long long dilation) {
  return dilation == 1 && (stride & (stride - 1)) == 0;
}

}  // namespace sluice
