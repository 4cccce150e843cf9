#include "kernels/operators/causal_conv1d/depthwise_overlap.h"

#include "kernels/operators/causal_conv1d/window_launch.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {
namespace {

constexpr int kThreads = kDepthwiseOverlapSums;

template <class T>
struct DepthwiseArguments {
  Operand<3> input, output, weight;
  Operand<1> bias;
  Sequences states;
  FastDivisor by_blocks, by_inner;  // blocks of a row; channels or sums of a block, whichever adjacent threads have
  FastDivisor by_stride, by_of_channel;
  int channels, block_channels;
  int length, results, sums, overlap;
  int taps, dilation;
  bool across;  // adjacent threads have adjacent channels, else adjacent sums
  ChainArguments<T, 3> pre, post;
};

// A thread's sum.
struct DepthwiseSum {
  int row, channel, position;
  bool exists;

  template <class T>
  __device__ explicit DepthwiseSum(const DepthwiseArguments<T>& a) {
    row = static_cast<int>(a.by_blocks.quotient_of_31_bits(blockIdx.x));
    const int block = static_cast<int>(blockIdx.x) - row * static_cast<int>(a.by_blocks.divisor);
    const int outer = static_cast<int>(a.by_inner.quotient_of_31_bits(threadIdx.x));
    const int inner = static_cast<int>(threadIdx.x) - outer * static_cast<int>(a.by_inner.divisor);
    const int own = a.across ? inner : outer;
    channel = block * a.block_channels + own;
    position = a.across ? outer : inner;
    exists = own < a.block_channels && channel < a.channels && position < a.sums;
  }
  __device__ __forceinline__ Place place(const long long* strides, int of, int at) const {
    return {row * strides[0] + of * strides[1] + at * strides[2], 0, 0, 1, 0};
  }
};

// An input after `pre`, rounded to its dtype.
template <class Chain, class Element, class T>
__device__ __forceinline__ T input_at(const DepthwiseArguments<T>& a, const DepthwiseSum& own, int channel, int t) {
  const long long* const strides = a.input.strides;
  const Element value = a.input.template as<Element>()[own.row * strides[0] + channel * strides[1] + t * strides[2]];
  if constexpr (std::is_same_v<Chain, NoChain>) {
    return convert<T>(value);
  } else {
    T values[1] = {convert<T>(value)};
    run_chain<Chain, 1, 1>(a.pre, [&](const long long* to, int) { return own.place(to, channel, t); }, values);
    return convert<T>(convert<Element>(values[0]));
  }
}

template <class Chain, class Element, class T>
__device__ __forceinline__ T sum_taps(const DepthwiseArguments<T>& a, const DepthwiseSum& own) {
  const int channel = static_cast<int>(a.by_of_channel.quotient_of_31_bits(own.channel));
  const int of_channel = own.channel - channel * static_cast<int>(a.by_of_channel.divisor);
  const long long* const strides = a.weight.strides;
  const Element* const weight = a.weight.template as<Element>() + channel * strides[0] + of_channel * strides[1];
  T sum = T(0);
#pragma unroll 1
  for (int k = 0, from = own.position; k < a.taps && from >= 0; ++k, from -= a.dilation) {
    const int t = static_cast<int>(a.by_stride.quotient_of_31_bits(from));
    if (t >= a.length || t * static_cast<int>(a.by_stride.divisor) != from) continue;
    sum += input_at<Chain, Element>(a, own, channel, t) * convert<T>(weight[k * strides[2]]);
  }
  return sum;
}

// A result, or a zero of a row without a slot.
template <class Chain, class Element, class T>
__device__ __forceinline__ void finish(const DepthwiseArguments<T>& a, const DepthwiseSum& own, T sum, bool has_slot) {
  if (a.bias.exists()) sum += convert<T>(a.bias.template as<Element>()[own.channel * a.bias.strides[0]]);
  T values[1] = {sum};
  const auto place_of = [&](const long long* strides, int) { return own.place(strides, own.channel, own.position); };
  run_chain<Chain, 1, 1>(a.post, place_of, values);
  a.output.template as<Element>()[place_of(a.output.strides, 0).offset] = convert<Element>(has_slot ? values[0] : T(0));
}

template <class Chain, class Element, class T>
__global__ void __launch_bounds__(kThreads) depthwise_overlap_kernel(const __grid_constant__ DepthwiseArguments<T> a) {
  const DepthwiseSum own(a);
  const long long slot = own.exists ? a.states.slot_of(own.row) : -1;
  const Operand<3>& cache = a.states.before;
  T* const overlap = cache.template as<T>() + slot * cache.strides[0] + own.channel * cache.strides[1];
  T sum = T(0);
  if (slot >= 0) {
    sum = sum_taps<Chain, Element>(a, own);
    if (own.position < a.overlap && a.states.has_history(own.row)) sum += overlap[own.position * cache.strides[2]];
  }
  __syncthreads();
  if (!own.exists) return;
  if (own.position < a.results) {
    finish<Chain, Element>(a, own, sum, slot >= 0);
  } else if (slot >= 0) {
    overlap[(own.position - a.results) * cache.strides[2]] = sum;
  }
}

template <class Element>
cudaError_t launch_as(const DepthwiseOverlapParams& p, cudaStream_t stream) {
  using T = std::conditional_t<std::is_same_v<Element, double>, double, float>;
  const int sums = static_cast<int>(p.sums());
  const bool across = p.output.strides[1] == 1 && p.output.strides[2] != 1;
  const int block_channels = static_cast<int>(min_of<long long>(kThreads / sums, p.channels));
  const long long blocks = ceil_div<long long>(p.channels, block_channels);
  const long long inputs[] = {p.states.count, p.channels / p.of_channel, p.length};
  const long long results[] = {p.states.count, p.channels, p.results()};
  DepthwiseArguments<T> a{};
  a.input = p.input, a.output = p.output, a.weight = p.weight, a.bias = p.bias, a.states = p.states;
  a.by_blocks = FastDivisor(blocks), a.by_inner = FastDivisor(across ? block_channels : sums);
  a.by_stride = FastDivisor(p.stride), a.by_of_channel = FastDivisor(p.of_channel);
  a.channels = static_cast<int>(p.channels), a.block_channels = block_channels;
  a.length = static_cast<int>(p.length), a.results = static_cast<int>(p.results());
  a.sums = sums, a.overlap = static_cast<int>(p.overlap);
  a.taps = p.taps, a.dilation = p.dilation, a.across = across;
  a.pre = make_chain_arguments<T, 3>(p.pre, p.pre_operands, 3, inputs);
  a.post = make_chain_arguments<T, 3>(p.post, p.post_operands, 3, results);
  const auto kernel = p.pre.empty() && p.post.empty() ? depthwise_overlap_kernel<NoChain, Element, T>
                                                      : depthwise_overlap_kernel<ElementwiseChain<T, 3>, Element, T>;
  return launch_kernel(kernel, p.states.count * blocks, kThreads, 0, stream, a);
}

}  // namespace

cudaError_t launch_depthwise_overlap(const DepthwiseOverlapParams& params, cudaStream_t stream) {
  switch (params.input.dtype) {
    case DType::float16: return launch_as<__half>(params, stream);
    case DType::bfloat16: return launch_as<__nv_bfloat16>(params, stream);
    case DType::float64: return launch_as<double>(params, stream);
    default: return launch_as<float>(params, stream);
  }
}

}  // namespace sluice
