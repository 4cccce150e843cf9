// Sizes of the dense kernel.
#pragma once

#include "kernels/common/qualifiers.h"

namespace sluice {

inline constexpr int kDenseConsumerWarps = 8;   // two warpgroups
inline constexpr int kDenseThreads = 512;       // two warpgroups fetch, two multiply
inline constexpr int kDenseFetchThreads = 224;  // the input; the eighth warp fetches the weights

// Of the registers that 512 threads have (128 each), for a thread that fetches and for one that multiplies.
inline constexpr int kDenseFetchRegisters = 56, kDenseConsumerRegisters = 200;

// A fetching warp's ring of raw tiles, which are transposed on their way to rows of channels: 16 channels of 16
// positions.
inline constexpr int kRawChannels = 16, kRawUnits = 8, kRawBytes = kRawChannels * 16 * 2;

inline constexpr int kTileAlignment = 1024;  // of a swizzled tile
inline constexpr int kMostInputStages = 4, kMostWeightStages = 32;
inline constexpr int kMostDenseChannels = 128;

// A warp's results pass through shared memory 16 positions by 32 channels at a time, as rows of channels or of
// positions. With these pitches, and four or eight floats changing places in some rows (multiply.cuh), no store and no
// load meets another in a bank: found by trying all.
inline constexpr int kDensePiece = 32;
inline constexpr int kDenseChannelPitch = 40, kDensePositionPitch = 24;
inline constexpr int kDenseStagedFloats = 768;  // 16 rows of 40, or 32 of 24

}  // namespace sluice
