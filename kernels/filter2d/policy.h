// How much one thread and one block take on, and from where on which kernel and which schedule is the fastest.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/common/int_math.h"
#include "kernels/pipeline/policy.h"

namespace sluice {

// What kernels are compiled with, the same on every architecture.

inline constexpr int kFilter2dThreads = 128;
// Blocks that a multiprocessor's registers hold, by the kernels' launch bounds and the rings' plans: 4 at 128 registers
// a thread, and one fewer of a ring's blocks with a producing warp.
inline constexpr int kFilter2dResidentBlocks = 4;
inline constexpr int kSeparableBlocks = 3;

// A thread's patch: some words of consecutive outputs by some rows. Eight outputs a row make a tap worth eight products
// for one read of it (float64: four, or the sums alone would fill the registers).
constexpr int filter2d_patch_words(DType dtype) { return size_of(dtype) == 2 ? 1 : 2; }
constexpr int filter2d_columns(DType dtype) { return filter2d_patch_words(dtype) * word_elements(dtype); }

// Each row of the image is read once for all rows of the patch. A separable kernel also filters it once for them, so it
// gains by more rows: at 31 x 31 four rows cost 295 products an output, eight 178. Rings take four for both, so that
// one kernel serves both: each has a long list of schedules.
inline constexpr int kDenseRows = 4;
inline constexpr int kSeparableRows = 8;
inline constexpr int kChainRows = 4;  // that `post` takes at a time: 32 values are what registers hold beside the sums

constexpr int filter2d_rows(bool separable, bool direct) { return separable && direct ? kSeparableRows : kDenseRows; }

// Square kernels of these sizes have a kernel each, with their taps in registers.
constexpr bool is_small_square(int height, int width) { return height == width && (height == 3 || height == 5); }

// Squares on aligned rows (aligned_kernel.cuh): a thread has a strip of one word by some rows. On an H200, 64 frames of
// 1080 x 1920, where a device copy takes 253 us in float32 and 128 us in float16; patches take 406 and 273 us at 3 x 3,
// 600 and 513 us at 5 x 5.
//   3 x 3  258 and 143 us with a strip's few rows all loaded up front. More rows save reading halos twice, and cost the
//          registers that let enough blocks be resident.
//   5 x 5  282 and 156 us one row after another. The floor on resident blocks is what makes the compiler keep the
//          taps in uniform registers, which a product reads beside the two banks of the others.
constexpr int aligned_rows(DType dtype) { return size_of(dtype) == 2 ? 8 : 4; }  // 3 x 3
// Rows of a 5 x 5 strip that are loaded ahead of their use. Two of a half type spill at seven resident blocks, and not
// at six.
constexpr int aligned_rows_ahead(DType dtype) { return size_of(dtype) == 2 ? 1 : 2; }
// Blocks of a multiprocessor. A type of the output that is known late takes registers too.
constexpr int aligned_blocks(int side, DType dtype, bool casts) {
  const int blocks = side == 5 ? 7 : size_of(dtype) == 2 ? 5 : 8;
  return casts ? blocks - side / 2 : blocks;
}

// Results of one column that a thread of sampled_kernel.cuh has: a tap and its column's place are found once for them.
inline constexpr int kSampledRows = 4;

// Squares on rows that lie anyhow (ragged_kernel.cuh). Counted, not measured: at a copy's speed (4.3 TB/s, 132
// multiprocessors at 1.98 GHz) a half type leaves 31 issue slots a result and float32 62; the loops issue 25 and 32 at
// 3 x 3, 40 and 49 at 5 x 5, the word that each warp sums twice among them.
inline constexpr int kRaggedLanes = 31;     // of a warp, whose words are stored
inline constexpr int kRaggedRowsAhead = 2;  // 20 KiB in flight of a multiprocessor, where 13 cover 0.8 us of reads
// Results of a smaller extent are mostly frame, and words beyond a narrower row would lie beyond the next one.
inline constexpr int kRaggedLeastExtent = 64;
// Blocks of a multiprocessor: 102 registers a thread.
constexpr int ragged_blocks(int side) { return side == 5 ? 4 : 5; }

// Taps of a row of the kernel are read in chunks of as many as a word has elements, and lie in shared memory so padded.
constexpr int filter2d_chunks(int kernel_width, DType dtype) { return ceil_div(kernel_width, word_elements(dtype)); }

// What plans decide by, a row an architecture (docs/measurements/schedules.md).
struct Filter2dPolicy {
  int compute_capability;

  // Patches: threads side by side, the shape of a tile that is wanted most first. Another wins only by fewer tiles, as
  // for images that are small or narrow.
  int lanes[8];

  // Strips of aligned5: rows to try first, and others. A strip's start costs as much as so many rows, its halo's 4 and
  // the latency of its first loads; so many blocks of a multiprocessor take no longer than one. Another number of rows
  // wins where it costs less than so many tenths. What a start costs is reckoned, not measured.
  ByElement strip_rows;
  int other_strip_rows[8];
  int strip_start_rows, strip_few_blocks, strip_clearly_less_tenths;

  // Images whose rows lie apart differently cost a ring a copy a row: sides from which on it is the faster all the
  // same.
  ByElement unlike_rows_side, unlike_rows_separable_side;
  // Half types, separable, several waves of tiles: the side from which on to filter a row once for eight rows of
  // outputs, not four, is worth more than the ring.
  int eight_rows_side;
};

inline constexpr Filter2dPolicy kFilter2dPolicies[] = {
    {
        // One NVIDIA H200. Strips of 64 frames of 1080 x 1920: 36 rows were the fastest in half types, and 36 to 90 all
        // alike in float32. Tiles of 16 lanes are nearly square, 128 outputs by 32 rows, and have the least halo.
        .compute_capability = 90,
        .lanes = {16, 32, 8, 64, 4, 128, 2, 1},
        .strip_rows = {.half = 36, .wider = 72},
        .other_strip_rows = {60, 96, 48, 36, 24, 16, 8, 4},
        .strip_start_rows = 8,
        .strip_few_blocks = 3,
        .strip_clearly_less_tenths = 9,
        .unlike_rows_side = {.half = 13, .wider = 20},
        .unlike_rows_separable_side = {.half = 8, .wider = 24},
        .eight_rows_side = 20,
    },
};

}  // namespace sluice
