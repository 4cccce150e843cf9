// Sizes of the dense kernel.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/qualifiers.h"

namespace sluice {

inline constexpr int kDenseConsumerWarps = 8;   // two warpgroups
inline constexpr int kDenseThreads = 512;       // two warpgroups fetch, two multiply
inline constexpr int kDenseFetchThreads = 224;  // the input; the eighth warp fetches the weights

// Registers of a fetching and of a multiplying thread; the average of 512 threads is 128.
inline constexpr int kDenseFetchRegisters = 56, kDenseConsumerRegisters = 200;

// A fetching warp's ring of raw tiles, which are transposed on their way to rows of channels (transpose.cuh).
// `shifted`: rows are unaligned, so 64 positions span up to nine words and are realigned in shared memory.
inline constexpr int kRawChannels = 16, kRawPositions = 64, kRawTiles = 3;
SLUICE_HOST_DEVICE constexpr int raw_words(bool shifted) { return shifted ? 9 : 8; }
SLUICE_HOST_DEVICE constexpr int raw_ring_bytes(bool shifted) {
  return kRawTiles * kRawChannels * raw_words(shifted) * kWordBytes;
}

inline constexpr int kTileAlignment = 1024;  // bytes: the alignment of a swizzled tile
inline constexpr int kMostInputStages = 4, kMostWeightStages = 32;
inline constexpr int kMostDenseChannels = 128;

// A warp's results pass through shared memory as epilogue tiles of 16 positions by 32 channels, in rows of channels or
// of positions. With these pitches, and four or eight floats swapped in some rows (finish.cuh), neither stores nor
// loads have bank conflicts: found by trying all.
inline constexpr int kEpilogueColumns = 32;
inline constexpr int kDenseChannelPitch = 40, kDensePositionPitch = 24;
inline constexpr int kEpilogueFloats = 768;  // 16 rows of 40, or 32 of 24

// Measured limits beyond which shapes go to aten: random shapes followed by GELU (H200, half types, 1 to 2048
// channels, 1 to 65 taps, torch 2.11; benchmarks/random_shapes.py dense), torch's time over the kernel's.
//
//                                               the kernel's                        aten's
//   input element by element                    Cin K < 1024: 1.36                  1.04, 27 of 48 slower than torch
//   less than a tile for two SMs,               up to 180 steps of a tap and        of one tap, from 5 steps on, 0.92;
//   not split                                   64 channels: 1.15 to 4.5 (H100)     beyond 180 not measured
//   one tap, rows of whole words                Cin or L no multiple of 8: 1.3      0.46 to 0.86 (7 of 7), 2.4 (1)
//   unaligned rows, Cin K >= 1024               up to half a tile beyond it: 2.1    0.63; converted first 0.79 (H100)
inline constexpr long long kMostGatheredSum = 1024, kMostStepsOfFewTiles = 256, kMostStepsOfFewProducts = 4;
// One tap, element by element: with few channels in and many out, nearly all traffic is the result.
inline constexpr long long kMostGatheredProduct = 16;
// Channels of a group, in and out: with fewer, the tensor cores multiply mostly zeros. 48 and 64 are 4 times cuDNN's
// speed and more; the limit itself is a prediction. A group's packed weights and results begin at whole words.
constexpr bool suits_dense_groups(long long groups, long long input_channels, long long channels) {
  constexpr long long kLeast = 16, kWord = 8;
  return groups == 1 ||
         (input_channels / groups >= kLeast && channels / groups >= kLeast && channels / groups % kWord == 0);
}
// The same limits hold with a stride: predicted. With one tap, inputs that would need the conversion to channels-last
// go to aten; so do sums from kMostGatheredSum on whose residues do not fit into one stage and would be gathered.

}  // namespace sluice
