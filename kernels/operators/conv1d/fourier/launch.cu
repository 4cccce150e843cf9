#include "kernels/operators/conv1d/fourier/launch.h"

#include "kernels/operators/conv1d/fourier/fourier.cuh"
#include "kernels/shared/pipeline/launch.cuh"

namespace sluice {
namespace {

Kernel<FourierArguments> interpreted_kernel(const Conv1dParams& params, const FourierPlan& plan) {
  if (!params.pre.empty() || !params.post.empty()) return interpreted_fourier_kernel<float>;  // whole or partitioned
  return plan.partitions > 1 ? plain_fourier_kernel<true> : plain_fourier_kernel<false>;
}

}  // namespace

cudaError_t launch_fourier(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                           cudaStream_t stream) {
  const FourierPlan& own = plan.fourier;
  if (const cudaError_t status = launch_spectra(params, own, workspace, stream); status != cudaSuccess) return status;
  FourierArguments a{};
  static_cast<Conv1dTensors&>(a) = params;
  static_cast<FourierPlan&>(a) = own;
  a.tables = FourierTables(workspace, params.channels * own.partitions);
  a.by_pairs = FastDivisor(own.pairs);
  a.by_segments = FastDivisor(own.segments_per_row);
  a.by_multiplier = FastDivisor(params.multiplier);
  const long long inputs[3] = {params.batch, params.channels / params.multiplier, params.length};
  const long long outputs[3] = {params.batch, params.channels, params.output_length};
  a.pre = make_chain_arguments<float, 3>(params.pre, params.pre_operands, 3, inputs);
  a.post = make_chain_arguments<float, 3>(params.post, params.post_operands, 3, outputs);
  const void* const kernel =
      linked != nullptr ? linked : reinterpret_cast<const void*>(interpreted_kernel(params, own));
  return launch_kernel(kernel, plan.grid, plan.threads, plan.shared_memory, stream, a,
                       own.begins_beside ? Start::beside : Start::behind);
}

}  // namespace sluice
