// Fills in a kernel's arguments. The launchers are in launch_<kind>.cuh.
#pragma once

#include "kernels/operators/filter2d/arguments.cuh"
#include "kernels/operators/filter2d/launch.h"
#include "kernels/operators/filter2d/sampled.cuh"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {

template <class Element>
Filter2dArguments<Element> make_arguments(const Filter2dParams& params, const Filter2dPlan& plan) {
  Filter2dArguments<Element> a{params, plan};
  a.tap_words = filter2d_tap_words(params.kernel_width, params.image.dtype);
  a.depth = plan.depth;
  a.schedule = plan.schedule;
  a.tiles = params.batch * params.channels * plan.tiles_across * plan.tiles_down;
  a.by_channels = FastDivisor(params.channels);
  a.by_across = FastDivisor(takes_strips(plan.which) ? plan.strips_across : plan.tiles_across);
  a.by_down = FastDivisor(plan.tiles_down);
  a.by_blocks = FastDivisor(plan.blocks_per_plane);
  const long long image[4] = {params.batch, params.channels, params.height, params.width};
  const long long output[4] = {params.batch, params.channels, params.output_height, params.output_width};
  a.pre = make_chain_arguments<Compute<Element>, 4>(params.pre, params.pre_operands, 4, image);
  a.post = make_chain_arguments<Compute<Element>, 4>(params.post, params.post_operands, 4, output);
  return a;
}

// Arguments of kernels that sample the image.
template <class Element>
SamplingArguments<Element> make_sampling_arguments(const Filter2dParams& params, const Filter2dPlan& plan) {
  SamplingArguments<Element> a{make_arguments<Element>(params, plan), params.sampling, problem_of(params).interior,
                               plan.strip_blocks};
  if (takes_unaligned_strips(plan.which)) a.by_across = FastDivisor(plan.warps_across);
  return a;
}

template <class Element>
cudaError_t launch_direct(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream);

template <class Element>
cudaError_t launch_aligned(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream);

template <class Element>
cudaError_t launch_columns(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                           cudaStream_t stream);

template <class Element>
cudaError_t launch_tiled(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                         cudaStream_t stream);

template <class Element>
cudaError_t launch_toeplitz(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                            cudaStream_t stream);

template <class Element>
cudaError_t launch_staged(const Filter2dParams& params, const Filter2dPlan& plan, const void* linked,
                          cudaStream_t stream);

}  // namespace sluice
