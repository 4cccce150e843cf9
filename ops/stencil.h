// A stencil with its chains, as filter2d makes one of its arguments, and its run.
#pragma once

#include "kernels/filter2d/windows.h"
#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"
#include "ops/common/question.h"

namespace sluice {

// Rows and columns around an image.
struct Padding {
  int64_t top, bottom, left, right;
};

// A stencil, every argument checked. The image is as it was given, or where that is uint8 and no kernel reads it
// converted to float32.
struct Stencil {
  const char* op;
  Tensor image, kernel;  // kernel: separable: its column of taps
  std::optional<Tensor> row_kernel, bias;
  int64_t height, width;  // of the kernel
  Padding padding;
  Filter2dWindows windows;
  Chain pre, post;
  DType dtype;  // of the result
  ScheduleRequest schedule;
  std::vector<int64_t> sizes, strides;  // of the result

  // One kernel for all channels, rather than one each.
  bool is_shared() const { return kernel.dim() == (row_kernel.has_value() ? 1 : 2); }
};

// The extent of dimension -3; 1 where there is none.
inline int64_t channels_of(const TensorView& image) { return image.rank > 2 ? image.sizes[image.rank - 3] : 1; }

// Writes the result into `output`, which has any strides and at least one element; or links what would, and returns why
// the chains are not linked, empty where they are; or returns the plan as text.
std::string run_stencil(const Stencil& stencil, const TensorView& output, const Question& question = {});

}  // namespace sluice
