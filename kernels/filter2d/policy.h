// How much one thread and one block take on.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/common/int_math.h"

namespace sluice {

inline constexpr int kFilter2dThreads = 128;
inline constexpr int kFilter2dResidentBlocks = 4;  // at 128 registers a thread

// A thread's patch: some words of consecutive outputs by some rows. Eight outputs a row make a tap worth eight products
// for one read of it (float64: four, or the sums alone would fill the registers).
constexpr int filter2d_patch_words(DType dtype) { return size_of(dtype) == 2 ? 1 : 2; }
constexpr int filter2d_columns(DType dtype) { return filter2d_patch_words(dtype) * word_elements(dtype); }

// Each row of the image is read once for all rows of the patch. A separable kernel also filters it once for them, so it
// gains by more rows: at 31 x 31 four rows cost 295 products an output, eight 178. Rings take four for both, so that one
// kernel serves both: each has a long list of schedules.
inline constexpr int kDenseRows = 4;
inline constexpr int kSeparableRows = 8;
inline constexpr int kChainRows = 4;  // that `post` takes at a time: 32 values are what registers hold beside the sums

constexpr int filter2d_rows(bool separable, bool direct) { return separable && direct ? kSeparableRows : kDenseRows; }

// Square kernels of these sizes have a kernel each, with their taps in registers.
constexpr bool is_small_square(int height, int width) { return height == width && (height == 3 || height == 5); }

// Squares on aligned rows (aligned_kernel.cuh): a thread has a strip of one word by some rows. On an H200, 64 frames of 1080 x
// 1920, where a device copy takes 253 us in float32 and 128 us in float16; patches take 406 and 273 us at 3 x 3, 600 and 513 us
// at 5 x 5.
//   3 x 3  258 and 143 us with a strip's few rows all loaded up front. More rows save reading halos twice, and cost the
//          registers that let enough blocks be resident.
//   5 x 5  282 and 156 us one row after another. The floor on resident blocks is what makes the compiler keep the taps in
//          uniform registers, which a product reads beside the two banks of the others.
constexpr int aligned_rows(DType dtype) { return size_of(dtype) == 2 ? 8 : 4; }  // 3 x 3
// Rows of a 5 x 5 strip that are loaded ahead of their use. Two of a half type spill at seven resident blocks, and not at six.
constexpr int aligned_rows_ahead(unsigned long element_size) { return element_size == 2 ? 1 : 2; }
constexpr int aligned_resident_blocks(int side, unsigned long element_size) { return side == 5 ? 7 : element_size == 2 ? 5 : 8; }

// Taps of a row of the kernel are read in chunks of as many as a word has elements, and lie in shared memory so padded.
constexpr int filter2d_chunks(int kernel_width, DType dtype) { return ceil_div(kernel_width, word_elements(dtype)); }

}  // namespace sluice
