// filter2d, a depthwise stencil:
//
//   output[b, c, y, x] = bias[c] + sum_{i, j} kernel[c, i, j] image[b, c, y - top + i, x - left + j]
//
// with a chain on the image before it is padded (pre) and one on the result (post). A separable kernel is the product
// of a column of taps and a row of taps. Windows may be strided, and taps dilated:
//
//   image row  y stride_down - top + i dilation_down,  and likewise across
#pragma once

#include "kernels/operators/filter2d/sampling.h"
#include "kernels/shared/pipeline/plan.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// A kernel's tensors and sizes, without its chains. Operands of four dimensions are (batch, channel, row, column);
// kernel, row_taps and bias have the image's dtype.
struct Filter2dTensors {
  Operand<4> image, output;
  Operand<3> kernel;                         // (channel, row, column); separable: its column of taps
  Operand<2> row_taps;                       // (channel, column) of a separable kernel; else absent
  Operand<1> bias;                           // may be absent
  long long batch, channels, height, width;  // sizes of the image
  long long output_height, output_width;
  int kernel_height, kernel_width;
  long long top, left;  // rows and columns of the border above the image and on its left
};

struct Filter2dParams : Filter2dTensors {
  Filter2dSampling sampling = {};
  Program pre = {}, post = {};
  Operand<4> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct Filter2dProblem {
  long long batch = 1, channels = 1, output_height = 1, output_width = 1;
  int kernel_height = 1, kernel_width = 1;
  bool separable = false;
  DType dtype = DType::float32;
  bool casts = false;                // the output's dtype differs
  bool shifted = false;              // the output's rows are equally aligned to 16-byte words, but do not start at one
  bool aligned = false;              // is_aligned
  bool has_pre = false;              // there is a chain on the image
  bool has_post = false;             // there is a chain on the result
  bool has_tensors = false;          // the chain on the result has tensor operands
  long long column_stride = 1;       // elements from a column of the image to the next; 1: contiguous
  bool rows_equally_aligned = true;  // columns contiguous, rows equally aligned to words: a ring fetches one rectangle
  bool has_small_planes = true;      // 32-bit numbers hold the bytes of a plane of the image and of the output
  bool in_channels = false;          // channels are contiguous, in the image and in the output
  Filter2dSampling sampling = {};
  bool in_rows = false;  // has_rows
  Filter2dInterior interior = {};

  bool has_adjacent_columns() const { return column_stride == 1; }
};

enum class Filter2dKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/filter2d/kernels.def"
};

// What a thread has: a patch of a tile in registers; a word of columns by many rows, on aligned rows or on any; a
// column; a patch of a tile in shared memory; pixels with their windows; a part of Toeplitz products.
enum class Filter2dFamily { patches, strips, unaligned_strips, columns, tiles, pixels, toeplitz };

struct Filter2dTraits {
  const char* name;
  Filter2dFamily family;
};

inline constexpr Filter2dTraits kFilter2dTraits[] = {
#define SLUICE_TRAITS(family) Filter2dFamily::family
#define SLUICE_KERNEL(name, file, module, dtypes, code, pre, post, bounds, traits, ...) {#name, SLUICE_TRAITS traits},
#include "kernels/operators/filter2d/kernels.def"
#undef SLUICE_TRAITS
};
constexpr const char* name_of(Filter2dKernel kernel) { return kFilter2dTraits[static_cast<int>(kernel)].name; }
constexpr bool is_of(Filter2dKernel kernel, Filter2dFamily family) {
  return kFilter2dTraits[static_cast<int>(kernel)].family == family;
}

// How planes are cut.
struct Filter2dTiles {
  bool shifted = false;  // the problem's
  // Patches.
  int lanes = 0;                               // threads of a block across; the others are below
  long long tiles_across = 1, tiles_down = 1;  // tiles of one plane
  int tap_bytes = 0;                           // bytes of shared memory for taps: a block's (direct) or a stage's
  int pitch_words = 0;                         // 16-byte words per row of the image in a stage
  int stage_words = 0;                         // words of a stage's rows
  bool channels_together = false;              // tiles of adjacent channels are adjacent
  // Strips.
  long long strips_across = 1, strips_down = 1;  // strips of one plane
  int strip_rows = 0;
  long long blocks_per_plane = 1;
  // Columns.
  int interleaved = 1;      // channels of a row of positions
  long long groups = 1;     // groups of so many channels
  long long positions = 1;  // positions of a row, with the border
  // Tiles in shared memory, and Toeplitz products.
  int groups_down = 1;  // patches or groups of columns down a tile; `lanes` are across
  int steps = 0;        // steps of a row of taps
};

struct Filter2dPlan : Plan, Filter2dTiles {
  Filter2dKernel which = Filter2dKernel::patches;
  // Unaligned strips.
  long long warps_across = 1;
  int strip_blocks = 0;  // blocks of a plane that have strips; its other blocks have the frame
};

Filter2dProblem problem_of(const Filter2dParams& params);

// Whether a non-separable kernel of an odd number of columns keeps the image's width, and rows of the image and of the
// output are whole, aligned words (an output of smaller elements: whole vectors of a word's elements, aligned to them).
bool is_aligned(const Filter2dParams& params);

// Whether the columns of the image and of the output are contiguous, no two rows overlap, and 32-bit numbers hold a
// plane's extents.
bool has_rows(const Filter2dParams& params);

// `linked`: for the form with its chains linked in. `threads` is 0 and `reason` names the rule if `device` cannot meet
// the request.
Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device, bool linked);

}  // namespace sluice
