// Launches the dense kernel with strides, groups and splits, for one tile.
#pragma once

#include "kernels/operators/conv1d/dense/launch_dense.cuh"

namespace sluice {

template <class Element, int Blocks, int Channels>
cudaError_t launch_dense_general(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                                 cudaStream_t stream) {
  return launch_with<Element, Blocks, Channels>(params, plan, linked, stream, make_general_arguments(params, plan));
}

}  // namespace sluice
