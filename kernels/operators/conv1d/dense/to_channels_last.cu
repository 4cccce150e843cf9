#include "kernels/operators/conv1d/dense/launch.h"
#include "kernels/operators/conv1d/dense/to_channels_last.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {
namespace {

template <class Pre, class Element, ChannelsLastFrom From>
__global__ void __launch_bounds__(kToChannelsLastThreads)
    to_channels_last_kernel(const __grid_constant__ ToChannelsLastArguments a) {
  to_channels_last<Pre, Element, From>(a);
}

template <class Pre, class Element>
Kernel<ToChannelsLastArguments> kernel_of(ChannelsLastFrom from) {
  switch (from) {
    case ChannelsLastFrom::channels: return to_channels_last_kernel<Pre, Element, ChannelsLastFrom::channels>;
    case ChannelsLastFrom::words: return to_channels_last_kernel<Pre, Element, ChannelsLastFrom::words>;
    default: return to_channels_last_kernel<Pre, Element, ChannelsLastFrom::positions>;
  }
}

Kernel<ToChannelsLastArguments> interpreted_kernel(const ToChannelsLastParams& params, bool plain) {
  const ChannelsLastFrom from = channels_last_from(params);
  const DType dtype = params.input.dtype;
  if (plain) return dtype == DType::float32 ? kernel_of<NoChain, float>(from) : kernel_of<NoChain, __half>(from);
  if (dtype == DType::float32) return kernel_of<ElementwiseChain<float, 3>, float>(from);
  return dtype == DType::float16 ? kernel_of<ElementwiseChain<float, 3>, __half>(from)
                                 : kernel_of<ElementwiseChain<float, 3>, __nv_bfloat16>(from);
}

}  // namespace

cudaError_t launch_to_channels_last(const ToChannelsLastParams& params, const Program& pre, const Operand<3>* operands,
                                    const void* linked, cudaStream_t stream) {
  ToChannelsLastArguments a{params};
  const int word = word_elements(params.input.dtype);
  while (a.shift < 3 && params.channels > (word << a.shift)) ++a.shift;
  const long long channel_tiles = ceil_div<long long>(params.channels, word << a.shift);
  const long long position_tiles = ceil_div<long long>(params.length, kToChannelsLastWords >> a.shift);
  const long long sizes[3] = {params.batch, params.channels, params.length};
  a.by_channel_tiles = FastDivisor(channel_tiles);
  a.by_position_tiles = FastDivisor(position_tiles);
  a.pre = make_chain_arguments<float, 3>(pre, operands, 3, sizes);
  const void* const kernel =
      linked != nullptr ? linked : reinterpret_cast<const void*>(interpreted_kernel(params, pre.empty()));
  return launch_kernel(kernel, params.batch * position_tiles * channel_tiles, kToChannelsLastThreads,
                       kToChannelsLastWords * kWordBytes, stream, a);
}

}  // namespace sluice
