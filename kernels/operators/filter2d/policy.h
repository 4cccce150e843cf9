// Work of a thread and of a block, and the thresholds at which a plan chooses kernels and schedules.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// Compile-time constants, the same on every architecture.

inline constexpr int kFilter2dThreads = 128;
// Resident blocks per SM, by the kernels' launch bounds and the rings' plans: 4 at 128 registers a thread; a ring's
// blocks, which have a producer warp, are one fewer.
inline constexpr int kFilter2dResidentBlocks = 4;
inline constexpr int kSeparableBlocks = 3;

// A thread's patch: some words of consecutive outputs by some rows. With eight outputs a row, one read of a tap serves
// eight products (float64: four, or the sums alone would fill the registers).
constexpr int filter2d_patch_words(DType dtype) { return size_of(dtype) == 2 ? 1 : 2; }
constexpr int filter2d_columns(DType dtype) { return filter2d_patch_words(dtype) * word_elements(dtype); }

// Each row of the image is read once for all rows of the patch. A separable kernel also filters it once for them, so it
// gains more from rows: at 31 x 31 four rows cost 295 products an output, eight 178. Rings take four for both, so
// that one kernel serves both: each has a long list of schedules.
inline constexpr int kPatchRows = 4;
inline constexpr int kSeparableRows = 8;
inline constexpr int kChainRows = 4;  // rows that `post` takes at a time: registers hold 32 values beside the sums

constexpr int filter2d_rows(bool separable, bool direct) { return separable && direct ? kSeparableRows : kPatchRows; }

// Square kernels of these sizes have a GPU kernel each, with their taps in registers.
constexpr bool is_small_square(int height, int width) { return height == width && (height == 3 || height == 5); }

// Squares on aligned rows (aligned.cuh): a thread has a strip of one word by some rows. On an H200, 64 frames of
// 1080 x 1920, where a device copy takes 253 us in float32 and 128 us in float16; patches take 406 and 273 us at 3 x 3,
// 600 and 513 us at 5 x 5.
//   3 x 3  258 and 143 us with a strip's few rows all loaded up front. More rows read fewer halos twice, but cost
//          registers and so resident blocks.
//   5 x 5  282 and 156 us row by row. The lower bound on resident blocks makes the compiler keep the taps in uniform
//          registers, which a product reads beside the two banks of the others.
constexpr int aligned_rows(DType dtype) { return size_of(dtype) == 2 ? 8 : 4; }  // 3 x 3
// Rows of a 5 x 5 strip that are loaded ahead of their use. Two of a half type spill at seven resident blocks, not at
// six.
constexpr int aligned_rows_ahead(DType dtype) { return size_of(dtype) == 2 ? 1 : 2; }
// Resident blocks per SM. An output type known only at run time takes registers too.
constexpr int aligned_blocks(int side, DType dtype, bool casts) {
  const int blocks = side == 5 ? 7 : size_of(dtype) == 2 ? 5 : 8;
  return casts ? blocks - side / 2 : blocks;
}

// Results of one column per thread of sampled.cuh: a tap and its column are found once for them.
inline constexpr int kSampledRows = 4;

// Squares on unaligned rows (unaligned.cuh). Counted, not measured: at a copy's speed (4.3 TB/s, 132 SMs at 1.98
// GHz) a half type leaves 31 issue slots a result and float32 62; the loops issue 25 and 32 at 3 x 3, 40 and 49 at 5 x
// 5, including the word that each warp sums twice.
inline constexpr int kUnalignedLanes = 31;     // lanes of a warp whose words are stored
inline constexpr int kUnalignedRowsAhead = 2;  // 20 KiB in flight per SM, where 13 cover 0.8 us of reads
// Smaller results are mostly frame, and a narrower row's extra words could reach past the next row.
inline constexpr int kUnalignedLeastExtent = 64;
// Resident blocks per SM: 102 registers a thread.
constexpr int unaligned_blocks(int side) { return side == 5 ? 4 : 5; }

// Squares on images of any layout (columns.cuh).
// Image rows that a thread has in flight: their registers are in addition to the taps'.
constexpr int column_rows(int side) { return side == 9 ? 4 : 8; }
constexpr int column_threads(int side) { return side == 3 ? 256 : 128; }
constexpr int column_blocks(int side) { return side == 3 ? 4 : side == 5 ? 5 : side == 7 ? 4 : 3; }

// Tiles in shared memory as float32 (tiled.cuh). Columns of a thread's patch, and taps that a thread reads at once.
inline constexpr int kTiledColumns = 8, kTapsAtOnce = 4;
inline constexpr int kTiledThreads = 256;  // threads at most
constexpr int tiled_blocks(bool separable) { return separable ? 2 : 3; }

// Toeplitz products (toeplitz.cuh).
inline constexpr int kToeplitzRows = 8;   // rows of a group
inline constexpr int kToeplitzUnits = 2;  // units of a warp
inline constexpr int kUnitGroups = 16;    // the rows of a product
inline constexpr int kToeplitzBlocks = 4;

// Tap words per row of the kernel: rows are padded in shared memory to whole words of the image's elements.
constexpr int filter2d_tap_words(int kernel_width, DType dtype) { return ceil_div(kernel_width, word_elements(dtype)); }

// Parameters of the plans, one row per architecture (docs/measurements/schedules.md).
struct Filter2dPolicy {
  int compute_capability;

  // Patches: threads across, the preferred tile shape first. Another shape wins only by fewer tiles, as for images that
  // are small or narrow.
  int lanes[8];

  // Strips of aligned5, of unaligned rows and of columns: the rows to try first, and others. A strip's start costs as
  // much as `strip_start_rows` rows: its halo's 4 and the latency of its first loads. `strip_few_blocks` blocks per SM
  // take no longer than one. Another number of rows wins where it costs less than `strip_clearly_less_percent` percent.
  // A start's cost is estimated, not measured.
  ByElement strip_rows;
  int other_strip_rows[9];
  int strip_start_rows, strip_few_blocks, strip_clearly_less_percent;

  // A ring copies an image row by row if its rows are not equally aligned: the kernel sides from which the ring is
  // still faster.
  ByElement unlike_rows_side, unlike_rows_separable_side;
  // Toeplitz products: taps from which they are faster than FMA, and the most elements from a column to the next.
  // Groups across a tile to try; and estimates of what a tile, a word of its image and a unit's products cost, in
  // clocks of an SM.
  int least_toeplitz_taps, most_toeplitz_stride;
  int toeplitz_lanes[8];
  int toeplitz_tile_clocks, toeplitz_word_tenths, toeplitz_product_clocks;
  // Tiles in shared memory: taps from which they are faster, also if rows are not equally aligned, and the longer side
  // of a separable filter from which they are; lanes across a tile to try.
  ByElement least_tiled_taps, least_tiled_taps_unlike_rows;
  int least_tiled_separable_side;
  int tiled_lanes[6];
  // A column's start costs as much as so many rows beside its halo's: an estimate; and the percent of its strips.
  int column_start_rows, column_clearly_less_percent;
};

inline constexpr Filter2dPolicy kFilter2dPolicies[] = {
    {
        // One NVIDIA H200. Strips of 64 frames of 1080 x 1920: 36 rows were the fastest in half types; 36 to 90 were
        // equal in float32. Tiles of 16 threads across are nearly square, 128 outputs by 32 rows, and have the smallest
        // halo.
        .compute_capability = 90,
        .lanes = {16, 32, 8, 64, 4, 128, 2, 1},
        .strip_rows = {.half = 36, .wider = 72},
        .other_strip_rows = {60, 64, 96, 48, 36, 24, 16, 8, 4},
        .strip_start_rows = 8,
        .strip_few_blocks = 3,
        .strip_clearly_less_percent = 90,
        .unlike_rows_side = {.half = 13, .wider = 20},
        .unlike_rows_separable_side = {.half = 8, .wider = 24},
        .least_toeplitz_taps = 40,
        .most_toeplitz_stride = 16,
        .toeplitz_lanes = {16, 32, 8, 64, 4, 128, 2, 1},
        .toeplitz_tile_clocks = 200,
        .toeplitz_word_tenths = 6,
        .toeplitz_product_clocks = 16,
        .least_tiled_taps = {.half = 12, .wider = 12},
        .least_tiled_taps_unlike_rows = {.half = 12, .wider = 36},
        .least_tiled_separable_side = 5,
        .tiled_lanes = {16, 32, 8, 4, 2, 1},
        .column_start_rows = 8,
        .column_clearly_less_percent = 95,
    },
};

}  // namespace sluice
