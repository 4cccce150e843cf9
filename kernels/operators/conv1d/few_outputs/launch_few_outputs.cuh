#pragma once

#include "kernels/operators/conv1d/few_outputs/few_outputs.cuh"
#include "kernels/operators/conv1d/few_outputs/launch.h"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {

template <class Element, int Columns, bool ByPositions>
Kernel<FewOutputsArguments> few_outputs_kernel(bool plain) {
  return plain ? plain_few_outputs_kernel<Element, Columns, ByPositions>
               : interpreted_few_outputs_kernel<Element, Columns, ByPositions>;
}

template <class Element>
cudaError_t launch_few_outputs(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  const FewOutputsPlan& own = plan.few_outputs;
  const long long inputs[3] = {params.batch, params.dense.input_channels, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  FewOutputsArguments a{};
  static_cast<FewOutputsPlan&>(a) = own;
  a.input = params.input, a.output = params.output, a.weight = params.dense.weight, a.bias = params.bias;
  a.input_extent = 1;
  for (int d = 0; d < 3; ++d) a.input_extent += (inputs[d] - 1) * params.input.strides[d];
  a.input_channels = static_cast<int>(params.dense.input_channels);
  a.channels = static_cast<int>(params.channels);
  a.length = static_cast<int>(params.length);
  a.output_length = static_cast<int>(params.output_length);
  a.taps = params.taps;
  a.padding = static_cast<int>(params.padding);
  a.dilation = params.taps > 1 ? static_cast<int>(params.dilation) : 1;
  a.by_tiles = FastDivisor(own.tiles_of_row);
  a.by_taps = FastDivisor(params.taps);
  a.pre = make_chain_arguments<float, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, outputs);
  const bool plain = params.pre.empty() && params.post.empty();
  return launch_planned(plan, linked, stream, a, [&] {
    if (own.by_positions) {
      return own.columns == kFewColumns ? few_outputs_kernel<Element, kFewColumns, true>(plain)
                                        : few_outputs_kernel<Element, kMostColumns, true>(plain);
    }
    return own.columns == kFewColumns ? few_outputs_kernel<Element, kFewColumns, false>(plain)
                                      : few_outputs_kernel<Element, kMostColumns, false>(plain);
  });
}

}  // namespace sluice
