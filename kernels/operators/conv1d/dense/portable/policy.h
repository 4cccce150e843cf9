// Sizes of the portable dense kernel.
#pragma once

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

inline constexpr int kPortableThreads = 256;  // two warpgroups, which copy and multiply

// Sums of a thread, for a warpgroup's blocks of 64 positions and its channels.
constexpr int portable_sums(int blocks, int channels) { return blocks * channels / 2; }

// Resident blocks of an SM, by the launch bounds: float32 in parts has twice the sums.
constexpr int portable_blocks(int element_bytes, int sums) { return sums * (element_bytes == 4 ? 2 : 1) <= 32 ? 2 : 1; }

}  // namespace sluice
