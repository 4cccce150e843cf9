// Fills in a kernel's arguments. The launchers are in launch_<kind>.cuh, of which CMakeLists.txt makes instances.
#pragma once

#include "kernels/filter2d/arguments.cuh"
#include "kernels/filter2d/launch.h"
#include "kernels/pipeline/launch.cuh"

namespace sluice {

template <class Element>
Filter2dArguments<Element> make_arguments(const Filter2dParams& params, const Filter2dPlan& plan) {
  Filter2dArguments<Element> a;
  a.image = static_cast<const Element*>(params.image);
  a.kernel = static_cast<const Element*>(params.kernel);
  a.row_taps = static_cast<const Element*>(params.row_taps);
  a.bias = static_cast<const Element*>(params.bias);
  a.output = params.output;
  a.output_dtype = params.output_dtype;
  a.batch = params.batch;
  a.channels = params.channels;
  a.height = params.height;
  a.width = params.width;
  a.output_height = params.output_height;
  a.output_width = params.output_width;
  a.kernel_height = params.kernel_height;
  a.kernel_width = params.kernel_width;
  a.chunks = filter2d_chunks(params.kernel_width, params.dtype);
  a.top = params.top;
  a.left = params.left;
  for (int d = 0; d < 4; ++d) {
    a.image_strides[d] = params.image_strides[d];
    a.output_strides[d] = params.output_strides[d];
  }
  for (int d = 0; d < 3; ++d) a.kernel_strides[d] = params.kernel_strides[d];
  for (int d = 0; d < 2; ++d) a.row_taps_strides[d] = params.row_taps_strides[d];
  a.bias_stride = params.bias_stride;
  a.depth = plan.depth;
  a.lanes = plan.lanes;
  a.pitch_words = plan.pitch_words;
  a.stage_words = plan.stage_words;
  a.tap_bytes = plan.tap_bytes;
  a.shifted = problem_of(params).shifted;
  a.tiles = params.batch * params.channels * plan.tiles_across * plan.tiles_down;
  a.by_channels = FastDivisor(params.channels);
  a.by_across = FastDivisor(takes_strips(plan.which) ? plan.strips_across : plan.tiles_across);
  a.by_down = FastDivisor(plan.tiles_down);
  a.by_blocks = FastDivisor(plan.blocks_per_plane);
  a.strip_rows = plan.strip_rows;
  const long long image[4] = {params.batch, params.channels, params.height, params.width};
  const long long output[4] = {params.batch, params.channels, params.output_height, params.output_width};
  a.pre = make_chain_arguments<Compute<Element>, 4>(params.pre, params.pre_operands, 4, image);
  a.post = make_chain_arguments<Compute<Element>, 4>(params.post, params.post_operands, 4, output);
  return a;
}

template <class Element>
cudaError_t launch_direct(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream);

template <class Element>
cudaError_t launch_aligned(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream);

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream);

}  // namespace sluice
