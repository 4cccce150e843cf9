#include "kernels/causal_conv1d/launch.h"
#include "kernels/common/int_math.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;

// One element a thread: width - 1 columns are a few kilobytes, whatever the length.
__global__ void __launch_bounds__(kThreads) final_states_kernel(const __grid_constant__ FinalStatesParams p) {
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= p.batch * p.channels * p.width) return;
  const long long j = index % p.width, c = index / p.width % p.channels, b = index / p.width / p.channels;
  const long long position = p.length - p.width + j;
  double value = 0;
  if (position >= 0) {
    value = load_as<double>(p.input.data, p.input.dtype,
                            b * p.input.strides[0] + c * p.input.strides[1] + position * p.input.strides[2]);
  } else if (p.history.exists()) {
    value = load_as<double>(
        p.history.data, p.history.dtype,
        b * p.history.strides[0] + c * p.history.strides[1] + (position + p.width) * p.history.strides[2]);
  }
  const long long to = b * p.states.strides[0] + c * p.states.strides[1] + j * p.states.strides[2];
  with_element_type(p.states.dtype, [&](auto* tag) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    p.states.as<Element>()[to] = convert<Element>(value);
  });
}

}  // namespace

cudaError_t launch_final_states(const FinalStatesParams& params, cudaStream_t stream) {
  const long long elements = params.batch * params.channels * params.width;
  return launch_kernel(final_states_kernel, ceil_div<long long>(elements, kThreads), kThreads, 0, stream, params);
}

}  // namespace sluice
