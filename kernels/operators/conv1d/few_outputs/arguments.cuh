// Arguments of the kernel for few output channels.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/few_outputs/policy.h"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// Plans ensure that positions and tiles fit into 31 bits.
struct FewOutputsArguments : FewOutputsPlan {
  Operand<3> input, output, weight;  // `weight`: (output channel, input channel, tap)
  Operand<1> bias;
  long long input_extent;  // elements from the input's start to its end
  int input_channels, channels, length, output_length, taps, padding, dilation;
  FastDivisor by_tiles, by_taps;
  ChainArguments<float, 3> pre, post;

  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output.dtype); }
  __device__ float bias_of(int channel) const {
    if (!bias.exists()) return 0.0f;
    return load_as<float>(bias.data, known_dtype(LinkedTensor::bias, bias.dtype), channel * bias.strides[0]);
  }
};

// Results `begin` to `end` of one sample. They need `needed` input positions from `first` on, which is aligned where
// whole words of positions are read.
struct FewOutputsTile {
  int batch, begin, end, first, needed;

  __device__ __forceinline__ FewOutputsTile(const FewOutputsArguments& a, int index) {
    batch = static_cast<int>(a.by_tiles.quotient_of_31_bits(index));
    begin = (index - batch * static_cast<int>(a.tiles_of_row)) * a.outputs;
    end = min_of(begin + a.outputs, a.output_length);
    first = begin - a.padding - a.shift;
    needed = end - begin + a.shift + (a.taps - 1) * a.dilation;
  }
};

struct FewOutputsChains {
  struct Interpreted {
    using Pre = ElementwiseChain<float, 3>;
    using Post = ElementwiseChain<float, 3>;
  };
  struct Linked {
    using Pre = LinkedChain<float, 3, ChainSite::pre>;
    using Post = LinkedChain<float, 3, ChainSite::post>;
  };
};

inline void fill(FewOutputsArguments& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  const FewOutputsPlan& own = plan.few_outputs;
  const long long inputs[3] = {params.batch, params.dense.input_channels, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
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
}

}  // namespace sluice
