// Sizes of the dense kernel.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/qualifiers.h"

namespace sluice {

inline constexpr int kDenseConsumerWarps = 8;                        // two warpgroups
inline constexpr int kDenseThreads = 512;                            // two warpgroups fetch, two multiply
inline constexpr int kDenseFetchThreads = 224;                       // the input; the eighth warp fetches the weights
inline constexpr int kDenseChangeThreads = kDenseFetchThreads - 32;  // change what the first warp's tensor map copies

// Registers of a fetching and of a multiplying thread; the average of 512 threads is 128.
inline constexpr int kDenseFetchRegisters = 56, kDenseConsumerRegisters = 200;

// The most sums of a thread with which float32 is split (multiply.cuh): as many again are a tap's own.
inline constexpr int kMostSplitSums = 64;

// A fetching warp's ring of raw tiles, which are transposed on their way to rows of channels (raw_tiles.cuh): 32 bytes
// of channels. `shifted`: rows are unaligned, so 64 positions span one word more.
inline constexpr int kRawPositions = 64, kRawTiles = 3;
SLUICE_HOST_DEVICE constexpr int raw_channels(int element_bytes) { return 32 / element_bytes; }
SLUICE_HOST_DEVICE constexpr int raw_words(bool shifted, int element_bytes) {
  return kRawPositions * element_bytes / kWordBytes + (shifted ? 1 : 0);
}
// Enough for every dtype.
SLUICE_HOST_DEVICE constexpr int raw_ring_bytes(bool shifted) {
  return kRawTiles * raw_channels(2) * raw_words(shifted, 2) * kWordBytes;
}

inline constexpr int kSumBytes = 4;          // a split's sums are float32
inline constexpr int kTileAlignment = 1024;  // bytes: the alignment of a swizzled tile
inline constexpr int kMostInputStages = 4, kMostWeightStages = 32;
inline constexpr int kMostDenseChannels = 128;

// A warp's results pass through shared memory as epilogue tiles of 16 positions by 32 channels, in rows of channels or
// of positions. With these pitches, and four or eight floats swapped in some rows (finish.cuh), neither stores nor
// loads have bank conflicts: found by trying all.
inline constexpr int kEpilogueColumns = 32;
inline constexpr int kDenseChannelPitch = 40, kDensePositionPitch = 24;
inline constexpr int kEpilogueFloats = 768;  // 16 rows of 40, or 32 of 24
inline constexpr int kEpilogueVector = 8;    // elements of a thread's vector of results

// A group's packed weights and results begin at whole words. Groups of two input channels and more are faster than
// cuDNN's (H200: 1.4 to 6.5 times in half types, 1.8 to 4.3 times in float32 at full precision).
constexpr bool suits_dense_groups(long long groups, long long channels) {
  constexpr long long kWord = 8;
  return groups == 1 || channels / groups % kWord == 0;
}

}  // namespace sluice
