// Shared by the kernels of both layouts: arguments, words at the edges of the input, `pre`.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/load_several.cuh"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"

namespace sluice {

template <class Element>
struct Conv1dArguments : Conv1dTensors {
  using Input = Element;
  static constexpr bool kMayHaveHistory = true;
  using T = Compute<Element>;
  FastDivisor by_channels, by_multiplier;
  FastDivisor by_across, by_along;  // divide by the plan's tiles
  ChainArguments<T, 3> pre, post;

  __device__ T tap(long long channel, int k) const {
    return load_as<T>(weight.data, known_dtype(LinkedTensor::weight, weight.dtype), tap_index(channel, k));
  }
  // Taps in flight together. `index_of(i)`: a tap_index or kNoElement.
  template <int Count, class IndexOf>
  __device__ void load_taps(const IndexOf& index_of, T (&values)[Count]) const {
    load_several(weight.data, known_dtype(LinkedTensor::weight, weight.dtype), index_of, values);
  }
  __device__ long long tap_index(long long channel, int k) const {
    return channel * weight.strides[0] + k * weight.strides[1];
  }
  __device__ T bias_of(long long channel) const {
    if (!bias.exists()) return T(0);
    return load_as<T>(bias.data, known_dtype(LinkedTensor::bias, bias.dtype), channel * bias.strides[0]);
  }
  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output.dtype); }
  // The misalignment of the row's output to `Width` elements.
  template <int Width>
  __device__ int misalignment(long long batch_index, long long channel) const {
    const long long element = batch_index * output.strides[0] + channel * output.strides[1];
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(output.data) / size_of(output_type()) + element) % Width);
  }
};

template <class Element>
struct DirectArguments : Conv1dArguments<Element>, DirectPlan {
  FastDivisor by_vectors, by_lanes;
};

template <class Element>
struct WordsArguments : Conv1dArguments<Element>, WordsPlan {
  int rows_per_block;      // rows of a block, or its threads below
  bool contiguous_weight;  // the weight is of the input's dtype, contiguous from a multiple of four elements on
  FastDivisor by_lanes;
};

template <class Element>
struct WindowsArguments : Conv1dArguments<Element>, WindowsPlan {
  int rows_per_block;  // rows of a block, or its threads below
  FastDivisor by_lanes;
};

template <class Element>
struct StagedArguments : Conv1dArguments<Element>, StagedPlan {
  int depth;
  Schedule schedule;
};

template <class Element>
void fill(Conv1dArguments<Element>& a, const Conv1dParams& params) {
  static_cast<Conv1dTensors&>(a) = params;
  a.by_channels = FastDivisor(params.channels);
  a.by_multiplier = FastDivisor(params.multiplier);
  const long long inputs[3] = {params.batch, params.channels / params.multiplier, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  a.pre = make_chain_arguments<Compute<Element>, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<Compute<Element>, 3>(params.post, params.post_operands, 3, outputs);
}

// What all families have.
template <class Element>
void fill(Conv1dArguments<Element>& a, const Conv1dParams& params, const DepthwisePlan& plan) {
  fill(a, params);
  a.by_across = FastDivisor(plan.tiles_across);
  a.by_along = FastDivisor(plan.tiles_along);
}

template <class Element>
void fill(DirectArguments<Element>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(a, params, plan.depthwise);
  static_cast<DirectPlan&>(a) = plan.depthwise.as<DirectPlan>();
  a.by_vectors = FastDivisor(max_of(1LL, a.vectors_per_row));
  a.by_lanes = FastDivisor(a.lanes);
}

template <class Element>
void fill(WordsArguments<Element>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(a, params, plan.depthwise);
  static_cast<WordsPlan&>(a) = plan.depthwise.as<WordsPlan>();
  a.rows_per_block = plan.threads / a.lanes;
  a.by_lanes = FastDivisor(a.lanes);
  a.contiguous_weight = params.weight.dtype == params.input.dtype && params.weight.strides[1] == 1 &&
                        params.weight.strides[0] == params.taps &&
                        reinterpret_cast<std::uintptr_t>(params.weight.data) % (4 * sizeof(Element)) == 0;
}

template <class Element>
void fill(WindowsArguments<Element>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(a, params, plan.depthwise);
  static_cast<WindowsPlan&>(a) = plan.depthwise.as<WindowsPlan>();
  a.rows_per_block = plan.threads / a.lanes;
  a.by_lanes = FastDivisor(a.lanes);
}

template <class Element>
void fill(StagedArguments<Element>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(a, params, plan.depthwise);
  static_cast<StagedPlan&>(a) = plan.depthwise.as<StagedPlan>();
  a.depth = plan.depth;
  a.schedule = plan.schedule;
}

// One input value at any position: history or zero outside the tensor. `channel` is an input channel.
template <class Element>
__device__ __forceinline__ Element element_at(const Conv1dArguments<Element>& a, long long batch, long long channel,
                                              long long position) {
  if (position >= 0 && position < a.length) {
    return a.input.template as<const Element>()[batch * a.input.strides[0] + channel * a.input.strides[1] +
                                                position * a.input.strides[2]];
  }
  // A word may begin before the history.
  if (position < 0 && position >= -a.padding && a.history.exists()) {
    const long long index =
        batch * a.history.strides[0] + channel * a.history.strides[1] + (position + a.padding) * a.history.strides[2];
    return convert<Element>(load_as<typename Conv1dArguments<Element>::T>(
        a.history.data, known_dtype(LinkedTensor::history, a.history.dtype), index));
  }
  return convert<Element>(typename Conv1dArguments<Element>::T(0));
}

// The word of elements (channel + i channel_step, position + i position_step), one by one. For edges and for inputs
// that are not contiguous; out of line because the fast path never comes here.
template <class Element>
__device__ __noinline__ Word gather_word(const Conv1dArguments<Element>& a, long long batch, long long channel,
                                         long long position, int channel_step, long long position_step) {
  return gather_elements<Element>([&](int i) {
    const long long c = channel + i * channel_step;
    const bool exists = c * a.multiplier < a.channels;
    return exists ? element_at(a, batch, c, position + i * position_step)
                  : convert<Element>(typename Conv1dArguments<Element>::T(0));
  });
}

// A kernel's two chains: whether it may have `pre`, and their evaluators.
template <class Element, bool Operands>
struct InterpretedChains {
  using Pre = InterpretedChain<Compute<Element>, 3>;
  using Post = InterpretedChain<Compute<Element>, 3, Operands>;
};
template <class Element>
struct ElementwiseChains {
  using Pre = ElementwiseChain<Compute<Element>, 3>;
  using Post = ElementwiseChain<Compute<Element>, 3>;
};
template <class Element>
struct LinkedChains {
  using Pre = LinkedChain<Compute<Element>, 3, ChainSite::pre>;
  using Post = LinkedChain<Compute<Element>, 3, ChainSite::post>;
};

// `pre` on such a word, rounded to the input's type as transform would. Padding is not changed.
template <class Pre, class Element>
__device__ __noinline__ Word apply_pre(const Conv1dArguments<Element>& a, Word word, long long batch, long long channel,
                                       long long position, int channel_step, long long position_step) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  T values[kWidth];
  unpack<Element>(word, values);
  bool inside[kWidth];
  int first = kWidth, last = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const long long c = channel + i * channel_step, p = position + i * position_step;
    inside[i] = c * a.multiplier < a.channels && p >= 0 && p < a.length;
    first = inside[i] && i < first ? i : first;
    last = inside[i] ? i + 1 : last;
  }
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + channel * strides[1] + position * strides[2];
    const long long step = channel_step * strides[1] + position_step * strides[2];
    return Place{.offset = offset, .stride = step, .first = first, .last = last};
  };
  run_chain<Pre, kWidth, 1>(a.pre, place_of, values);
  return replace_elements<Element>(word, pack<Element>(values), [&](int i) { return inside[i]; });
}

}  // namespace sluice
