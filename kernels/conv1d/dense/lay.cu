#include "kernels/common/launch.cuh"
#include "kernels/conv1d/dense/launch.h"
#include "kernels/conv1d/dense/lay_kernel.cuh"
#include "kernels/pipeline/launch.cuh"
#include "kernels/stages/no_chain.cuh"

namespace sluice {
namespace {

template <class Pre, class Element, LayFrom From>
__global__ void __launch_bounds__(kLayThreads) lay_kernel(const __grid_constant__ LayArguments a) {
  lay<Pre, Element, From>(a);
}

template <class Pre, class Element>
Kernel<LayArguments> kernel_of(LayFrom from) {
  switch (from) {
    case LayFrom::channels: return lay_kernel<Pre, Element, LayFrom::channels>;
    case LayFrom::words: return lay_kernel<Pre, Element, LayFrom::words>;
    default: return lay_kernel<Pre, Element, LayFrom::positions>;
  }
}

Kernel<LayArguments> interpreted_kernel(const LayParams& params, bool plain) {
  const LayFrom from = lay_from(params);
  if (plain) return kernel_of<NoChain, __half>(from);
  return params.input.dtype == DType::float16 ? kernel_of<ElementwiseChain<float, 3>, __half>(from)
                                              : kernel_of<ElementwiseChain<float, 3>, __nv_bfloat16>(from);
}

}  // namespace

cudaError_t launch_lay(const LayParams& params, const Program& pre, const Operand<3>* operands, const void* linked,
                       cudaStream_t stream) {
  LayArguments a{params};
  while (a.shift < 3 && LayParams::pitch(params.channels) > (kPieceElements << a.shift)) ++a.shift;
  const long long channel_tiles = ceil_div<long long>(params.channels, kPieceElements << a.shift);
  const long long position_tiles = ceil_div<long long>(params.length, kLayPieces >> a.shift);
  const long long sizes[3] = {params.batch, params.channels, params.length};
  a.by_channel_tiles = FastDivisor(channel_tiles);
  a.by_position_tiles = FastDivisor(position_tiles);
  a.pre = make_chain_arguments<float, 3>(pre, operands, 3, sizes);
  const void* const kernel =
      linked != nullptr ? linked : reinterpret_cast<const void*>(interpreted_kernel(params, pre.empty()));
  return launch_kernel(kernel, params.batch * position_tiles * channel_tiles, kLayThreads, kLayPieces * kWordBytes,
                       stream, a);
}

}  // namespace sluice
