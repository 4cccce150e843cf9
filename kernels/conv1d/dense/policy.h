// Sizes of the dense kernel.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/common/qualifiers.h"

namespace sluice {

inline constexpr int kDenseConsumerWarps = 8;   // two warpgroups
inline constexpr int kDenseThreads = 512;       // two warpgroups fetch, two multiply
inline constexpr int kDenseFetchThreads = 224;  // the input; the eighth warp fetches the weights

// Of the registers that 512 threads have (128 each), for a thread that fetches and for one that multiplies.
inline constexpr int kDenseFetchRegisters = 56, kDenseConsumerRegisters = 200;

// A fetching warp's ring of raw tiles, which are transposed on their way to rows of channels (transpose.cuh).
// `shifted`: rows begin anywhere, so that 64 positions lie in up to nine words, which are moved to where words begin.
inline constexpr int kRawChannels = 16, kRawPositions = 64, kRawTiles = 3;
SLUICE_HOST_DEVICE constexpr int raw_words(bool shifted) { return shifted ? 9 : 8; }
SLUICE_HOST_DEVICE constexpr int raw_ring_bytes(bool shifted) {
  return kRawTiles * kRawChannels * raw_words(shifted) * kWordBytes;
}

inline constexpr int kTileAlignment = 1024;  // of a swizzled tile
inline constexpr int kMostInputStages = 4, kMostWeightStages = 32;
inline constexpr int kMostDenseChannels = 128;

// A warp's results pass through shared memory 16 positions by 32 channels at a time, as rows of channels or of
// positions. With these pitches, and four or eight floats changing places in some rows (finish.cuh), no store and no
// load meets another in a bank: found by trying all.
inline constexpr int kDensePiece = 32;
inline constexpr int kDenseChannelPitch = 40, kDensePositionPitch = 24;
inline constexpr int kDenseStagedFloats = 768;  // 16 rows of 40, or 32 of 24

// What aten's convolution takes, as measured: random shapes with GELU behind them (H200, half types, 1 to 2048
// channels, 1 to 65 taps, torch 2.11; benchmarks/random_shapes.py dense), torch's time over the kernel's.
//
//                                               the kernel's                        aten's
//   input element by element                    Cin K < 1024: 1.36                  1.04, 27 of 48 slower than torch
//   less than a tile for two multiprocessors,   up to 180 steps of a tap and        of one tap, from 5 steps on, 0.92;
//   in one part                                 64 channels: 1.15 to 4.5 (H100)     beyond 180 not measured
//   one tap, rows of whole words                Cin or L no multiple of 8: 1.3      0.46 to 0.86 (7 of 7), 2.4 (1)
//   rows that begin anywhere, Cin K >= 1024     up to half a tile beyond it: 2.1    0.63; laid first 0.79 (H100)
inline constexpr long long kMostGatheredSum = 1024, kMostStepsOfFewTiles = 256, kMostStepsOfFewProducts = 4;
// Of one tap, element by element: with few channels in and many out nearly all that moves is the result.
inline constexpr long long kMostGatheredProduct = 16;
// Channels of a group, in and out: fewer are mostly zeros to the tensor cores. 48 and 64 are 4 times cuDNN's speed and
// more, the limit itself is a prediction. Where a group begins, its packed weights and its results do at whole pieces.
constexpr bool suits_dense_groups(long long groups, long long input_channels, long long channels) {
  constexpr long long kLeast = 16, kPiece = 8;
  return groups == 1 ||
         (input_channels / groups >= kLeast && channels / groups >= kLeast && channels / groups % kPiece == 0);
}
// With a stride these hold too: predicted. With one tap, what would be laid channels side by side is aten's.
// What is gathered because all phases of a stride have no room together goes to aten from kMostGatheredSum on.

}  // namespace sluice
