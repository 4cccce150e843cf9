#include "ops/common/launch.h"

#include <algorithm>

#include "kernels/operators/causal_conv1d/cpu/update.h"
#include "kernels/operators/conv1d/cpu/depthwise.h"
#include "kernels/operators/conv1d/cpu/pack.h"
#include "kernels/operators/filter2d/cpu/filter2d.h"
#include "kernels/operators/transform/cpu/transform.h"
#include "ops/common/checks.h"
#include "ops/cpu/share_out.h"

namespace sluice {
namespace {

void run_tiles(const Filter2dParams& params, const Filter2dCpuTiles& tiles) {
  share_out(tiles.count, tiles.grain,
            [&]<InstructionSet set>(int64_t first, int64_t last) { filter2d_cpu<set>(params, tiles, first, last); });
}

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
  run_tiles(stencil, tiles);
  return true;
}

}  // namespace

void launch(const DeviceScope&, const TransformParams& params, const TransformPlan&, const void*) {
  constexpr int64_t kGrain = 32 * 1024;  // elements per thread at least
  int64_t elements = 1;
  for (int d = 0; d < params.rank; ++d) elements *= params.sizes[d];
  share_out(elements, kGrain,
            [&]<InstructionSet set>(int64_t first, int64_t last) { transform_cpu<set>(params, first, last); });
}

void launch(const DeviceScope&, const Filter2dParams& params, const Filter2dPlan&, const void*) {
  run_tiles(params, tiles_on_cpu(params));
}

void launch(const DeviceScope&, const Conv1dParams& params, const Conv1dPlan&, const void*, void*) {
  if (run_as_planes(params)) return;
  const DepthwiseTiles tiles = tiles_on_cpu(params);
  share_out(tiles.count, tiles.grain,
            [&]<InstructionSet set>(int64_t first, int64_t last) { depthwise_cpu<set>(params, tiles, first, last); });
}

void launch(const DeviceScope& device, const TransposeParams&) {
  check(false, device.op(), ": a plan for the CPU must have no transpositions");
}

void launch(const DeviceScope& device, const ChunkParams&, const ChunkPlan&, void*) {
  check(false, device.op(), ": a plan for the CPU must have no chunks");
}

void launch(const DeviceScope& device, const DepthwiseOverlapParams&) {
  check(false, device.op(), ": the CPU must have no depthwise overlaps of its own");
}

void launch(const DeviceScope&, const UpdateParams& params) {
  const int64_t grain = std::max(1LL, (16LL << 10) / std::max(1LL, params.tokens * params.taps * kUpdateChannels));
  share_out(update_items(params), grain, [&]<InstructionSet set>(int64_t first, int64_t last) {
    causal_conv1d_update_cpu<set>(params, first, last);
  });
}

void launch(const DeviceScope&, const PackParams& params) { pack_cpu(params); }

}  // namespace sluice
