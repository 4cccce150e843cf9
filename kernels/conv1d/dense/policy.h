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
// positions each (fetch.cuh).
inline constexpr int kRawChannels = 16, kRawPositions = 16, kRawRingBytes = 4096;

inline constexpr int kTileAlignment = 1024;  // of a swizzled tile
inline constexpr int kMostInputStages = 4, kMostWeightStages = 32;
inline constexpr int kMostDenseChannels = 128;

// A warp's results pass through shared memory 16 positions by 32 channels at a time, as rows of channels or of
// positions. With these pitches, and four or eight floats changing places in some rows (finish.cuh), no store and no
// load meets another in a bank: found by trying all.
inline constexpr int kDensePiece = 32;
inline constexpr int kDenseChannelPitch = 40, kDensePositionPitch = 24;
inline constexpr int kDenseStagedFloats = 768;  // 16 rows of 40, or 32 of 24

// What aten's convolution takes, as measured: 436 random shapes with GELU behind them (H200, float16, (B, C, L), 1 to
// 2048 channels, 1 to 65 taps, torch 2.11), torch's time over the kernel's, geometric means.
//
//                                             the kernel's                        aten's
//   input element by element                  Cin K < 1024: 1.36                  1.04, 27 of 48 slower than torch
//   less than a tile for two multiprocessors  up to 64 steps of a tap and         1.03, 15 of 32 slower
//                                             64 channels: 1.5
//   result element by element, Cin K < 64     up to a tile for a multiprocessor   1.05, 11 of 28 slower
inline constexpr long long kMostGatheredSum = 1024, kMostStepsOfFewTiles = 64, kLeastScatteredSum = 64;

}  // namespace sluice
