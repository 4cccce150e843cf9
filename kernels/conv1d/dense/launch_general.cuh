// Launches the dense kernel with strides, groups and splits, for one tile. CMakeLists.txt makes instances.
#pragma once

#include "kernels/conv1d/dense/launch_tile.cuh"

namespace sluice {

template <class Element, int Blocks, int Channels>
cudaError_t launch_general(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                           cudaStream_t stream) {
  return launch_with<Element, Blocks, Channels>(params, plan, linked, stream, make_general_arguments(params, plan));
}

}  // namespace sluice
