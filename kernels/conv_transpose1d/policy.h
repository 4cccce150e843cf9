// By what a transposed convolution's way is decided.
#pragma once

namespace sluice {

// A launch each, or a walk through torch's threads.
inline constexpr long long kMostPhases = 16;

}  // namespace sluice
