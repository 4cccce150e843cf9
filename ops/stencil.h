// A stencil with its chains, made from filter2d's arguments, and its execution.
#pragma once

#include "kernels/operators/filter2d/sampling.h"
#include "kernels/shared/pipeline/schedule.h"
#include "ops/common/call_mode.h"
#include "ops/common/chain.h"

namespace sluice {

// Rows and columns around an image.
struct Padding {
  int64_t top, bottom, left, right;
};

// A stencil with checked arguments. The image is the caller's or, if that is uint8 and no kernel reads it, a copy in
// float32.
struct Stencil {
  const char* op;
  Tensor image, kernel;  // kernel: if separable, its column of taps
  std::optional<Tensor> row_kernel, bias;
  int64_t height, width;  // the kernel's
  Padding padding;
  Filter2dSampling sampling;
  Chain pre, post;
  DType dtype;  // the result's
  ScheduleRequest schedule;
  std::vector<int64_t> sizes, strides;  // the result's

  bool has_chains() const { return !pre.empty() || !post.empty(); }
  // Whether all channels share a kernel.
  bool is_shared() const { return kernel.dim() == (row_kernel.has_value() ? 1 : 2); }
};

// The extent of dimension -3; 1 if there is none.
inline int64_t channels_of(const TensorView& image) { return image.rank > 2 ? image.sizes[image.rank - 3] : 1; }

// Writes the result into `output`, which has any strides and at least one element; or only links, and returns why the
// chains are not linked, empty if they are; or returns the plan as text.
std::string run_stencil(const Stencil& stencil, const TensorView& output, const CallMode& mode = {});

}  // namespace sluice
