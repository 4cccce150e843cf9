#ifndef SLUICE_CUDA_LIBRARY

#include "ops/convolution/cpu.h"

#include <torch/csrc/stable/ops.h>

#include "kernels/cpu/conv1d/depthwise.h"
#include "kernels/cpu/filter2d/filter2d.h"

namespace sluice {
namespace {

// Runs a depthwise convolution of rows shorter than vectors as a stencil over planes of one row, which are transposed
// (planes.h). Returns whether it did.
bool run_as_planes(const Conv1dParams& p) {
  const bool fits = p.stride == 1 && p.dilation == 1 && p.multiplier == 1 && !p.history.exists();
  if (!fits || p.output_length >= kNarrowPlane) return false;
  const auto plane = [](const Operand<3>& rows, long long width) {
    return Operand<4>{rows.data, rows.dtype, {rows.strides[0], rows.strides[1], width, rows.strides[2]}};
  };
  Filter2dParams stencil{{
      .image = plane(p.input, p.length),
      .output = plane(p.output, p.output_length),
      .kernel = {p.weight.data, p.weight.dtype, {p.weight.strides[0], 0, p.weight.strides[1]}},
      .row_taps = {},
      .bias = p.bias,
      .batch = p.batch,
      .channels = p.channels,
      .height = 1,
      .width = p.length,
      .output_height = 1,
      .output_width = p.output_length,
      .kernel_height = 1,
      .kernel_width = p.taps,
      .top = 0,
      .left = p.padding,
  }};
  if (!p.pre.empty() || p.post.operands > 0) return false;
  stencil.post = p.post;
  const Filter2dCpuTiles tiles = tiles_on_cpu(stencil);
  if (tiles.way != Filter2dCpuWay::planes) return false;
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, tiles.count, tiles.grain,
                                [&](int64_t first, int64_t last) { filter2d_cpu<set>(stencil, tiles, first, last); });
  });
  return true;
}

}  // namespace

void run_depthwise_on_cpu(const Conv1dParams& params) {
  if (run_as_planes(params)) return;
  const DepthwiseTiles tiles = tiles_on_cpu(params);
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, tiles.count, tiles.grain,
                                [&](int64_t first, int64_t last) { depthwise_cpu<set>(params, tiles, first, last); });
  });
}

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
