// Work of a thread and of a block, and the thresholds at which a plan chooses kernels and schedules.
#pragma once

#include "kernels/operators/conv1d/tap_work.h"
#include "kernels/shared/common/dtype.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// Compile-time constants, the same on every architecture.

inline constexpr int kConv1dThreads = 128;
// Resident blocks per SM, by the kernels' launch bounds and the rings' plans: 4 at 128 registers a thread; a ring's
// blocks, which have a producer warp, are one fewer.
inline constexpr int kConv1dResidentBlocks = 4;
inline constexpr int kPlainRowBlocks = 6;
constexpr int direct_row_blocks(bool has_chain) { return has_chain ? kConv1dResidentBlocks : 5; }
// Words of plain_rows' threads: 16 outputs, the chain's interpreter's cheapest count (8 of float64).
constexpr int plain_row_words(DType dtype) { return size_of(dtype) == 2 ? 2 : 4; }

// Rows: words of consecutive outputs per thread. With two, one read of a weight serves 16 products in half types, and
// the chain's interpreter is cheapest at 16 values.
inline constexpr int kRowWords = 2;
constexpr int conv1d_row_outputs(DType dtype) { return kRowWords * word_elements(dtype); }
// Taps that plain_rows holds in registers.
constexpr int register_taps(DType dtype) { return word_elements(dtype); }

// Channels: a block is 8 vectors of channels (128 bytes of a position, so whole sectors) by 16 threads along the
// positions, each with 4 consecutive positions.
inline constexpr int kChannelVectors = 8;
inline constexpr int kPositionThreads = kConv1dThreads / kChannelVectors;
inline constexpr int kPositions = 4;
inline constexpr int kTilePositions = kPositionThreads * kPositions;

// Up to kFewTaps taps with stride and dilation 1 have their own kernels, which are memory-bound: blocks of few threads,
// each with many loads in flight.
inline constexpr int kFewTaps = 4;
inline constexpr int kFewTapsThreads = 128;    // threads at most
inline constexpr int kFewTapsRowThreads = 64;  // threads of rows, about
inline constexpr int kFewTapsChannelThreads = 64;
inline constexpr int kFewTapsLeastLanes = 4;  // so that only a thread's first word may start before its row
inline constexpr int kFewTapsChained = 8;     // values that `post` takes at a time
// Words of a thread along a row. A float's word has half the outputs, and its halo is a whole word.
constexpr int few_taps_words(DType dtype) { return size_of(dtype) == 2 ? 4 : 8; }
// Channels and positions per thread. Its taps and its window are in registers, so it takes half a word of a half type
// and many positions, or a word of float and fewer.
inline constexpr int kFewTapsChannels = 4;
constexpr int few_taps_positions(DType dtype) { return size_of(dtype) == 2 ? 16 : 8; }
// Resident blocks per SM: the most without a spill. Converting float16 to float32 takes more registers than converting
// bfloat16.
constexpr int few_taps_row_blocks(DType dtype) { return size_of(dtype) == 2 ? 8 : 5; }
constexpr int few_taps_channel_blocks(DType dtype) { return dtype == DType::bfloat16 ? 11 : 10; }
// Channels-last, with `pre`, with tensors in `post`, with a dilation, or with more taps: fewer positions, so that all
// their operands are in flight with the inputs.
inline constexpr int kEightTaps = 8;
constexpr int gated_positions(DType dtype) { return size_of(dtype) == 2 ? 8 : 4; }
inline constexpr int kGatedBlocks = 8;
constexpr int eight_taps_positions(DType dtype) { return size_of(dtype) == 2 ? 16 : 8; }
constexpr int eight_taps_blocks(DType dtype) { return size_of(dtype) == 2 ? 7 : 6; }

// More taps, or channels that are not whole quads, with stride and dilation 1: windows in registers. Counted from the
// code for architecture 90, not measured. Rows: a word of inputs and one of taps for each 48 products, so that nine of
// ten instructions are products; 12 outputs are 3 words, an odd number, to avoid bank conflicts. Channels: 16 positions
// make an input and a tap worth 16 products a channel.
inline constexpr int kWindowThreads = 128;  // threads at most
inline constexpr int kWindowOutputs = 12;
inline constexpr int kWindowRowBlocks = 6;
inline constexpr int kWindowPositions = 16;
inline constexpr int kWindowChained = 8;  // positions that `post` takes at a time
constexpr int window_channel_blocks(int width) { return width == 2 ? 4 : 5; }
// Rows: a tile and its halo fit into any device's shared memory; channels: so do their taps.
inline constexpr int kMostWindowRowTaps = 4096;
inline constexpr int kMostWindowTapBytes = 72 * 1024;
// Rows of half types shorter than this use windows for few taps too (one H200, 256 x 512 x 33: 45 us with 4 taps in
// words through registers, 27 with 9 in windows).
inline constexpr int kLeastPlainLength = 128;
// Waves of window_channels' blocks below which a block does not iterate over more positions.
inline constexpr int kWindowWaves = 4;
inline constexpr int kWindowIterations = 8;
// Up to this many threads across, whose results are half a sector, results are collected in shared memory.
inline constexpr int kCollectedLanes = 16;
inline constexpr int kCollectedBytes = 4;  // bytes of an output element, at most

constexpr int compute_bytes(DType dtype) { return dtype == DType::float64 ? 8 : 4; }

// Parameters of the plans, one row per architecture.

// Tap counts are the first from which a rule holds, with stride and dilation 1 and linked chains; nothing else was
// measured (docs/measurements/schedules.md).
struct DepthwisePolicy {
  int compute_capability;

  // Few taps, rows: fewer words a thread if an SM would have fewer threads than this, and would wait; half the words if
  // a row has fewer than that many threads' words, and the last threads would be idle.
  int busy_threads;
  int short_row_lanes;
  // Few taps, channels: from this many positions on, a thread takes as many as its registers hold.
  int long_sequence;

  // Channels: always a ring; from this many taps on, its second stage is worth less than the resident blocks it costs,
  // if there is more than one wave of tiles. Vectors that are not whole words are gathered, and the copies are
  // synchronous.
  int one_stage_taps;
  ByElement one_stage_taps_gathered;

  // Rows, several waves of tiles: a ring with a producer warp.
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
