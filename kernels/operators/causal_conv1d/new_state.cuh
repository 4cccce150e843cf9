// The new state of a row's channel, column by column.
#pragma once

#include "kernels/operators/causal_conv1d/state_bits.cuh"
#include "kernels/operators/causal_conv1d/window.h"

namespace sluice {

__device__ __forceinline__ std::uint64_t bits_at(const ValueRun& run, long long j, DType as) {
  return run.from == nullptr || j < run.zeros ? 0 : bits_at(*run.from, run.offset + j * run.step, as);
}

class NewState {
 public:
  __device__ NewState(const WindowParams& params, long long row, long long slot, long long channel)
      : params_(params),
        before_(params.before(row, slot, channel, params.length)),
        kept_(params.kept()),
        from_(row * params.input.strides[0] + channel * params.input.strides[1] +
              params.first_kept_input() * params.input.strides[2]),
        to_(slot * cache().strides[0] + channel * cache().strides[1]) {}

  // Column j, as the cache has it; reads no column before it.
  __device__ std::uint64_t bits(long long j) const {
    if (j < kept_) return bits_at(before_, j, cache().dtype);
    return bits_at(params_.input, from_ + (j - kept_) * params_.input.strides[2], cache().dtype);
  }
  __device__ void store(long long j, std::uint64_t bits) const {
    store_bits(cache().dtype, cache().data, to_ + j * cache().strides[2], bits);
  }

 private:
  __device__ const Operand<3>& cache() const { return params_.states.before; }

  const WindowParams& params_;
  const ValueRun before_;
  const long long kept_, from_, to_;
};

}  // namespace sluice
