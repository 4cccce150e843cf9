#pragma once

#include "kernels/operators/conv1d/long_filter/launch.h"
#include "kernels/operators/conv1d/long_filter/long_filter.cuh"
#include "kernels/operators/conv1d/long_filter/long_filter_channels.cuh"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {

template <class Element>
Kernel<LongFilterArguments<Element>> interpreted_kernel(LongFilterKernel which, bool plain) {
  switch (which) {
    case LongFilterKernel::long_filter:
      return plain ? plain_long_filter_kernel<Element, true> : interpreted_long_filter_kernel<Element, true>;
    case LongFilterKernel::long_filter_many_steps:
      return plain ? plain_long_filter_kernel<Element, false> : interpreted_long_filter_kernel<Element, false>;
    default:
      return plain ? plain_long_filter_channels_kernel<Element> : interpreted_long_filter_channels_kernel<Element>;
  }
}

template <class Element>
cudaError_t launch_long_filter(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  LongFilterArguments<Element> a{};
  static_cast<Conv1dTensors&>(a) = params;
  static_cast<LongFilterPlan&>(a) = plan.long_filter;
  a.depth = plan.depth;
  a.by_batch = FastDivisor(params.batch);
  a.by_multiplier = FastDivisor(params.multiplier);
  a.by_segments = FastDivisor(plan.long_filter.segments_per_row);
  a.by_across = FastDivisor(plan.long_filter.channel_blocks);
  a.by_dilation = FastDivisor(params.dilation);
  const long long inputs[3] = {params.batch, params.channels / params.multiplier, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  a.pre = make_chain_arguments<Compute<Element>, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<Compute<Element>, 3>(params.post, params.post_operands, 3, outputs);
  const bool plain = params.pre.empty() && params.post.empty() && params.output.dtype == params.input.dtype;
  return launch_planned(plan, linked, stream, a,
                        [&] { return interpreted_kernel<Element>(plan.long_filter.which, plain); });
}

}  // namespace sluice
