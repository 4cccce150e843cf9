// filter2d, a depthwise stencil: output[b, c, y, x] = bias[c] + sum_{i, j} kernel[c, i, j] image[b, c, y - top + i, x - left +
// j], with a chain on the image before it is padded with zeros (pre) and one on the result (post). A separable kernel is the
// product of a column of taps and a row of taps.
#pragma once

#include "kernels/pipeline/plan.h"
#include "kernels/stages/program.h"

namespace sluice {

// Strides in elements. Four-dimensional ones are (batch, channel, row, column).
struct Filter2dParams {
  const void* image;
  const void* kernel;    // of the image's dtype, as are the others; separable: its column of taps
  const void* row_taps;  // of a separable kernel; else null
  const void* bias;      // may be null
  void* output;
  DType dtype, output_dtype;
  long long batch, channels, height, width;  // of the image
  long long output_height, output_width;
  int kernel_height, kernel_width;
  long long top, left;  // zeros above the image and on its left; what lies beyond any edge counts as zero
  long long image_strides[4], output_strides[4];
  long long kernel_strides[3];    // (channel, row, column)
  long long row_taps_strides[2];  // (channel, column)
  long long bias_stride;
  Program pre, post;
  Operand<4> pre_operands[kMaxOperands], post_operands[kMaxOperands];
};

struct Filter2dProblem {
  long long batch, channels, output_height, output_width;
  int kernel_height, kernel_width;
  bool separable;
  DType dtype;
  bool shifted;              // the output's rows lie alike against 16-byte words, but do not start at one
  bool aligned = false;      // is_aligned
  bool has_pre = false;      // there is a chain before
  bool has_post = false;     // and one behind,
  bool has_tensors = false;  // which has tensor operands
  bool rows_alike = true;    // all rows of the image lie alike against 16-byte words: a ring fetches them as one rectangle
};

// Which of direct_kernel.cuh's, aligned_kernel.cuh's and staged_kernel.cuh's kernels a plan means.
enum class Filter2dForm { square3, square5, aligned3, aligned5, dense, separable, staged };
constexpr bool is_aligned_form(Filter2dForm form) { return form == Filter2dForm::aligned3 || form == Filter2dForm::aligned5; }

struct Filter2dPlan : Plan {
  Filter2dForm form = Filter2dForm::dense;
  int lanes = 0;                   // threads of a block side by side; the others are below
  int pitch_words = 0;             // of a stage: 16-byte words from one row of the image to the next
  int stage_words = 0;             // of all its rows
  int tap_bytes = 0;               // of shared memory for taps: a block's (direct) or a stage's
  long long across = 0, down = 0;  // tiles of one plane; aligned: strips, of a thread each
  int rows = 0;                    // of a strip
  long long blocks = 1;            // that the strips of one plane take
};

Filter2dProblem problem_of(const Filter2dParams& params);

// Whether a dense kernel of an odd number of columns keeps the image's width, in rows that are whole vectors of a word's
// elements, those of the image and of the output aligned to words (an output of smaller elements: to its vectors).
bool is_aligned(const Filter2dParams& params);

// `linked`: for the form with its chains linked in. `plan.threads` is 0 and `plan.reason` names the rule where the request
// cannot be met on `device`.
Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                           bool linked);

}  // namespace sluice
