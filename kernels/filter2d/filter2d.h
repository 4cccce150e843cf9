// filter2d, a depthwise stencil:
//
//   output[b, c, y, x] = bias[c] + sum_{i, j} kernel[c, i, j] image[b, c, y - top + i, x - left + j]
//
// with a chain on the image before it is padded (pre) and one on the result (post). A separable kernel is the product
// of a column of taps and a row of taps. Windows may lie further apart than a pixel, and so may their taps:
//
//   image row  y stride_down - top + i dilation_down,  and likewise across
#pragma once

#include "kernels/filter2d/windows.h"
#include "kernels/pipeline/plan.h"
#include "kernels/stages/program.h"

namespace sluice {

// What a kernel is given, beside its chains. Operands of four dimensions are (batch, channel, row, column); kernel,
// row_taps and bias have the image's dtype.
struct Filter2dTensors {
  Operand<4> image, output;
  Operand<3> kernel;                         // (channel, row, column); separable: its column of taps
  Operand<2> row_taps;                       // (channel, column) of a separable kernel; else absent
  Operand<1> bias;                           // may be absent
  long long batch, channels, height, width;  // of the image
  long long output_height, output_width;
  int kernel_height, kernel_width;
  long long top, left;  // pixels of the border above the image and on its left
};

struct Filter2dParams : Filter2dTensors {
  Filter2dWindows windows = {};
  Program pre = {}, post = {};
  Operand<4> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct Filter2dProblem {
  long long batch = 1, channels = 1, output_height = 1, output_width = 1;
  int kernel_height = 1, kernel_width = 1;
  bool separable = false;
  DType dtype = DType::float32;
  bool casts = false;        // the output is of another dtype
  bool shifted = false;      // the output's rows lie alike against 16-byte words, but do not start at one
  bool aligned = false;      // is_aligned
  bool has_pre = false;      // there is a chain before
  bool has_post = false;     // and one behind,
  bool has_tensors = false;  // which has tensor operands
  bool adjacent = true;      // the image's columns are side by side in memory,
  bool rows_alike = true;    // and all its rows lie alike against 16-byte words: a ring fetches them as one rectangle
  Filter2dWindows windows = {};
  bool in_rows = false;  // has_rows
  Filter2dInterior interior = {};
};

// Those of direct_kernel.cuh, aligned_kernel.cuh, staged_kernel.cuh, sampled_kernel.cuh and ragged_kernel.cuh. Patches
// cut a plane into tiles, and those into some columns by some rows, a thread each; strips are a word of columns by many
// rows. The last three read images of bytes.
enum class Filter2dKernel : int {
  square3,
  square5,
  aligned3,
  aligned5,
  dense,
  separable,
  staged,
  sampled,
  ragged3,
  ragged5,
  sampled_bytes,
  ragged3_bytes,
  ragged5_bytes
};
inline constexpr const char* kFilter2dKernelNames[] = {
    "square3", "square5", "aligned3", "aligned5",      "dense",         "separable",    "staged",
    "sampled", "ragged3", "ragged5",  "bytes_sampled", "bytes_ragged3", "bytes_ragged5"};
constexpr const char* name_of(Filter2dKernel kernel) { return kFilter2dKernelNames[static_cast<int>(kernel)]; }

// Whose threads have a strip each, on aligned rows: a word of columns by many rows.
constexpr bool takes_strips(Filter2dKernel kernel) {
  return kernel == Filter2dKernel::aligned3 || kernel == Filter2dKernel::aligned5;
}
// And on rows that lie anyhow.
constexpr bool takes_ragged_strips(Filter2dKernel kernel) {
  return kernel == Filter2dKernel::ragged3 || kernel == Filter2dKernel::ragged5 ||
         kernel == Filter2dKernel::ragged3_bytes || kernel == Filter2dKernel::ragged5_bytes;
}
constexpr bool is_sampled(Filter2dKernel kernel) {
  return kernel == Filter2dKernel::sampled || kernel == Filter2dKernel::sampled_bytes;
}

// What planes are cut into.
struct Filter2dTiles {
  bool shifted = false;  // the problem's
  // Patches.
  int lanes = 0;                               // threads of a block side by side; the others are below
  long long tiles_across = 1, tiles_down = 1;  // of one plane
  int tap_bytes = 0;                           // of shared memory for taps: a block's (direct) or a stage's
  int pitch_words = 0;                         // of a stage: 16-byte words from one row of the image to the next
  int stage_words = 0;                         // of all its rows
  // Strips.
  long long strips_across = 1, strips_down = 1;  // of one plane
  int strip_rows = 0;
  long long blocks_per_plane = 1;
};

struct Filter2dPlan : Plan, Filter2dTiles {
  Filter2dKernel which = Filter2dKernel::dense;
  // Ragged strips.
  long long warps_across = 1;
  int strip_blocks = 0;  // of a plane; the others of its blocks have the frame
};

Filter2dProblem problem_of(const Filter2dParams& params);

// Whether a dense kernel of an odd number of columns keeps the image's width, in rows that are whole vectors of a
// word's elements, those of the image and of the output aligned to words (an output of smaller elements: to its
// vectors).
bool is_aligned(const Filter2dParams& params);

// Whether the columns of the image and of the output are side by side and no two rows share any, in a plane whose
// extents 32-bit numbers hold.
bool has_rows(const Filter2dParams& params);

// `linked`: for the form with its chains linked in. `threads` is 0 and `reason` names the rule where the request
// cannot be met on `device`.
Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device, bool linked);

}  // namespace sluice
