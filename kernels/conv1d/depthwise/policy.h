// How much one thread and one block take on, and from where on which kernel and which schedule is the fastest.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/conv1d/tap_work.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What kernels are compiled with, the same on every architecture.

inline constexpr int kConv1dThreads = 128;
// Blocks that a multiprocessor's registers hold, by the kernels' launch bounds and the rings' plans: 4 at 128 registers
// a thread, and one fewer of a ring's blocks with a producing warp.
inline constexpr int kConv1dResidentBlocks = 4;
inline constexpr int kPlainRowBlocks = 6;
constexpr int direct_row_blocks(bool has_chain) { return has_chain ? kConv1dResidentBlocks : 5; }
// Words of plain_rows' threads: 16 outputs, which the chain's interpreter is cheapest at (8 of float64).
constexpr int plain_row_words(DType dtype) { return size_of(dtype) == 2 ? 2 : 4; }

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
// Channels last, with `pre`, with tensors in `post`, with a dilation, or with more taps: fewer positions, so that the
// operands of all of them are in flight with the inputs.
inline constexpr int kEightTaps = 8;
constexpr int gated_positions(DType dtype) { return size_of(dtype) == 2 ? 8 : 4; }
inline constexpr int kGatedBlocks = 8;
constexpr int eight_taps_positions(DType dtype) { return size_of(dtype) == 2 ? 16 : 8; }
constexpr int eight_taps_blocks(DType dtype) { return size_of(dtype) == 2 ? 7 : 6; }

// More taps, or channels that are no quads, with stride and dilation 1: windows in registers. Counted from the code
// for architecture 90, not measured. Rows: a word of inputs and one of taps for each 48 products, so that nine of ten
// instructions are products, and 12 outputs are 3 words, an odd number, for the banks' sake. Channels: 16 positions
// make an input and a tap worth 16 products a channel.
inline constexpr int kWindowThreads = 128;  // at most
inline constexpr int kWindowOutputs = 12;
inline constexpr int kWindowRowBlocks = 6;
inline constexpr int kWindowPositions = 16;
inline constexpr int kWindowChained = 8;  // positions that `post` takes at a time
constexpr int window_channel_blocks(int width) { return width == 2 ? 4 : 5; }
// Of rows, that a tile and its halo fit into any device's shared memory; of channels, that their taps do so as well.
inline constexpr int kMostWindowRowTaps = 4096;
inline constexpr int kMostWindowTapBytes = 72 * 1024;
// Rows of half types shorter than this take windows for few taps too (one H200, 256 x 512 x 33: 45 us with 4 taps in
// words through registers, 27 with 9 in windows).
inline constexpr int kLeastPlainLength = 128;
// Blocks that the channels' kernel should be, for each that fits, before one of them takes more positions.
inline constexpr int kWindowWaves = 4;
inline constexpr int kWindowTurns = 8;
// Up to so many threads side by side, whose results are half a sector's line, results are collected in shared memory.
inline constexpr int kCollectedLanes = 16;
inline constexpr int kCollectedBytes = 4;  // of an element of the output, at most

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

  // Rows, several waves of tiles: a ring whose own warp fetches.
  ByElement producer_taps;

  // Windows in registers, with many taps.
  TapWork work;
};

inline constexpr DepthwisePolicy kDepthwisePolicies[] = {
    {
        // One NVIDIA H200. Rows, bfloat16, direct against producer_consumer: 117 and 103 us with 12 taps at 8 x 1024 x
        // 4096, 265 and 200 with 64. Channels at 8 x 1024 x 4096: 122 us direct and 81 two_stage with 7 taps, 476
        // direct and 214 single_stage with 31. Windows in registers, 8 x 768 x 8192: 235 us with 31 taps, 292 with 64,
        // 592 with 191.
        .compute_capability = 90,
        .busy_threads = 256,
        .short_row_lanes = 8,
        .long_sequence = 2048,
        .one_stage_taps = 12,
        .one_stage_taps_gathered = {.half = 48, .wider = 96},
        .producer_taps = {.half = 48, .wider = 20},
        .work = {.slots = 1.7, .fixed_taps = 65},
    },
};

}  // namespace sluice
