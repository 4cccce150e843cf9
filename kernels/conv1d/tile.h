// How much one thread and one block take on.
#pragma once

#include "kernels/common/dtype.h"

namespace sluice {

inline constexpr int kConv1dThreads = 128;
inline constexpr int kConv1dResidentBlocks = 4;  // at 128 registers a thread

// channels_first: words of consecutive outputs a thread. Two make a tap worth 16 products in half types
// for one weight read, and 16 values are what the chain's interpreter is cheapest at.
inline constexpr int kRowWords = 2;

// channels_last: a block is 8 vectors of channels (128 bytes of a position, so whole sectors) by
// 16 threads along the positions, each of which takes 4 consecutive ones.
inline constexpr int kChannelVectors = 8;
inline constexpr int kPositionThreads = kConv1dThreads / kChannelVectors;
inline constexpr int kPositions = 4;
inline constexpr int kShortChannelTaps = 4;  // up to here a thread holds its whole window
inline constexpr int kTilePositions = kPositionThreads * kPositions;

constexpr int conv1d_row_outputs(DType dtype) { return kRowWords * word_elements(dtype); }
constexpr int compute_bytes(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

}  // namespace sluice
