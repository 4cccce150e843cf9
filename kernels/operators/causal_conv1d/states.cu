#include "kernels/operators/causal_conv1d/sequences_launch.h"
#include "kernels/operators/causal_conv1d/states.cuh"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;

template <class Element>
__global__ void __launch_bounds__(kThreads) states_kernel(const __grid_constant__ SequencesArguments<Element> a) {
  keep_states<NoChain>(a, blockIdx.x);
}

}  // namespace

cudaError_t launch_states(const SequencesParams& params, cudaStream_t stream) {
  return with_element(params.convolution.input.dtype, [&]<class Element>() {
    SequencesArguments<Element> a{};
    static_cast<Conv1dTensors&>(a) = params.convolution;
    a.sequences = params.sequences;
    a.by_channels = FastDivisor(params.convolution.channels);
    return launch_kernel(states_kernel<Element>, state_blocks(a, kThreads, 1), kThreads, 0, stream, a);
  });
}

}  // namespace sluice
