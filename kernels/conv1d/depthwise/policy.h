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
inline constexpr int kTilePositions = kPositionThreads * kPositions;

// Up to kFewTaps taps with stride and dilation 1 have kernels of their own, which are bound by memory alone: blocks of few
// threads, each with many loads in flight.
inline constexpr int kFewTaps = 4;
inline constexpr int kFewTapsThreads = 128;    // at most
inline constexpr int kFewTapsRowThreads = 64;  // about, channels_first
inline constexpr int kFewTapsChannelThreads = 64;
inline constexpr int kFewTapsChained = 8;  // values that `post` takes at a time
// Words of a thread, channels_first. A float's word has half the outputs, and its halo is a whole word.
constexpr int few_taps_words(DType dtype) { return size_of(dtype) == 2 ? 4 : 8; }
// Channels and positions of a thread, channels_last. Its taps and its window are in registers, so it takes half a word of
// a half type and many positions, or a word of float and fewer.
inline constexpr int kFewTapsChannels = 4;
constexpr int few_taps_positions(DType dtype) { return size_of(dtype) == 2 ? 16 : 8; }

constexpr int conv1d_row_outputs(DType dtype) { return kRowWords * word_elements(dtype); }
constexpr int compute_bytes(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

}  // namespace sluice
