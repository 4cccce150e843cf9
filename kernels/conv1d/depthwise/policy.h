// How much one thread and one block take on, and from where on which kernel and which schedule is the fastest.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What kernels are compiled with, the same on every architecture.

inline constexpr int kConv1dThreads = 128;
// Blocks that a multiprocessor's registers hold, by the kernels' launch bounds and the rings' plans: 4 at 128 registers
// a thread, and one fewer of a ring's blocks with a producing warp.
inline constexpr int kConv1dResidentBlocks = 4;
inline constexpr int kPlainRowBlocks = 7;

// Rows: words of consecutive outputs a thread. Two make a tap worth 16 products in half types
// for one weight read, and 16 values are what the chain's interpreter is cheapest at.
inline constexpr int kRowWords = 2;
constexpr int conv1d_row_outputs(DType dtype) { return kRowWords * word_elements(dtype); }
// Taps that plain_rows holds in registers.
constexpr int register_taps(DType dtype) { return word_elements(dtype); }

// Channels: a block is 8 vectors of channels (128 bytes of a position, so whole sectors) by
// 16 threads along the positions, each of which takes 4 consecutive ones.
inline constexpr int kChannelVectors = 8;
inline constexpr int kPositionThreads = kConv1dThreads / kChannelVectors;
inline constexpr int kPositions = 4;
inline constexpr int kTilePositions = kPositionThreads * kPositions;

// Up to kFewTaps taps with stride and dilation 1 have kernels of their own, which are bound by memory alone: blocks of
// few threads, each with many loads in flight.
inline constexpr int kFewTaps = 4;
inline constexpr int kFewTapsThreads = 128;    // at most
inline constexpr int kFewTapsRowThreads = 64;  // about, of rows
inline constexpr int kFewTapsChannelThreads = 64;
inline constexpr int kFewTapsLeastLanes = 4;  // of rows, so that only a thread's first word may lie before its row
inline constexpr int kFewTapsChained = 8;     // values that `post` takes at a time
// Words of a thread along a row. A float's word has half the outputs, and its halo is a whole word.
constexpr int few_taps_words(DType dtype) { return size_of(dtype) == 2 ? 4 : 8; }
// Channels and positions of a thread. Its taps and its window are in registers, so it takes half a word of
// a half type and many positions, or a word of float and fewer.
inline constexpr int kFewTapsChannels = 4;
constexpr int few_taps_positions(DType dtype) { return size_of(dtype) == 2 ? 16 : 8; }
// Blocks that a multiprocessor should hold: the most for which the registers do, without a spill. A float16 takes more
// of them on its way to float32 than a bfloat16.
constexpr int few_taps_row_blocks(DType dtype) { return size_of(dtype) == 2 ? 8 : 5; }
constexpr int few_taps_channel_blocks(DType dtype) { return dtype == DType::bfloat16 ? 11 : 10; }

constexpr int compute_bytes(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

// What plans decide by, a row an architecture.

// A count of taps is that from which on the rule holds, with stride and dilation 1 and chains that are linked; nothing
// else was measured (docs/measurements/schedules.md).
struct DepthwisePolicy {
  int compute_capability;

  // Few taps, rows: fewer words a thread where a multiprocessor would have fewer threads than this, and would wait;
  // half of them where a row has fewer than so many threads' words, and the last threads would have nothing to do.
  int busy_threads;
  int short_row_lanes;
  // Few taps, channels: from so many positions on a thread takes all that it has registers for.
  int long_sequence;

  // Channels: a ring runs always, and its second stage is worth less than the blocks that it costs from so many taps
  // on, if there is more than one wave of tiles. Where vectors are no whole words, they are gathered and the copies
  // synchronous.
  int one_stage_taps;
  ByElement one_stage_taps_gathered;

  // Rows, several waves of tiles: a ring whose own warp fetches. In half types fewer taps do where a row's tiles are
  // full: so many eighths of them, the last one included.
  ByElement producer_taps;
  int producer_taps_full_tiles;
  int full_tiles_eighths;
};

inline constexpr DepthwisePolicy kDepthwisePolicies[] = {
    {
        // One NVIDIA H200. Rows, bfloat16, direct against producer_consumer: 117 and 103 us with 12 taps at 8 x 1024 x
        // 4096, 265 and 200 with 64; 51.6 and 53.4 with 31 at 2 x 1023 x 3001, where half of each row's last tile is
        // empty. Channels at 8 x 1024 x 4096: 122 us direct and 81 two_stage with 7 taps, 476 direct and 214
        // single_stage with 31.
        .compute_capability = 90,
        .busy_threads = 256,
        .short_row_lanes = 8,
        .long_sequence = 2048,
        .one_stage_taps = 12,
        .one_stage_taps_gathered = {.half = 48, .wider = 96},
        .producer_taps = {.half = 48, .wider = 20},
        .producer_taps_full_tiles = 12,
        .full_tiles_eighths = 7,
    },
};

}  // namespace sluice
