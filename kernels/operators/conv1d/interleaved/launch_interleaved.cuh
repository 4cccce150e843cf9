// Launches the dense kernel that interleaves its results, for one tile.
#pragma once

#include "kernels/operators/conv1d/dense/launch_dense.cuh"
#include "kernels/operators/conv1d/interleaved/interleaved.cuh"

namespace sluice {

template <class Chains, class Element, int Blocks, int Channels>
__global__ void __launch_bounds__(kDenseThreads, 1) interleaved_kernel(const __grid_constant__ InterleavedArguments a) {
  dense<Chains, Element, Blocks, Channels, /*ByPositions=*/false>(a);
}

// Like launch_dense.
template <class Element, int Blocks, int Channels>
cudaError_t launch_interleaved(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
                               cudaStream_t stream) {
  if (linked == nullptr && !(params.pre.empty() && params.post.empty())) return cudaErrorNotSupported;
  InterleavedArguments a{make_dense_arguments(params, plan), params.interleave};
  const long long results[3] = {params.batch, params.interleave.channels, params.interleave.length};
  a.aligned_vectors = has_words(params.output, results, plan.dense.by_positions ? 2 : 1);
  a.post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, results);
  const auto interpreted = [] { return interleaved_kernel<NoChains, Element, Blocks, Channels>; };
  return launch_planned(plan, linked, stream, a, interpreted,
                        params.dense.follows_pack ? Start::beside : Start::behind);
}

}  // namespace sluice
