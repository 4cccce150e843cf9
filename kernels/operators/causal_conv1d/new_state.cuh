// The new state of a row's channel, column by column.
#pragma once

#include "kernels/operators/causal_conv1d/state_bits.cuh"
#include "kernels/operators/causal_conv1d/window.h"

namespace sluice {

__device__ __forceinline__ std::uint64_t bits_at(const ValueRun& run, long long j, DType as) {
  return run.from == nullptr || j < run.zeros ? 0 : bits_at(*run.from, run.offset + j * run.step, as);
}

// Null: the value is zero.
struct ValuePlace {
  const Operand<3>* tensor = nullptr;
  long long offset = 0;
};

class NewState {
 public:
  __device__ NewState(const WindowParams& params, long long row, long long slot, long long channel)
      : params_(params),
        before_(params.before(row, slot, channel, params.length)),
        kept_(params.kept()),
        from_(row * params.input.strides[0] + channel * params.input.strides[1] +
              params.first_kept_input() * params.input.strides[2]),
        to_(slot * cache().strides[0] + channel * cache().strides[1]) {}

  // Where column j comes from: the input, or a later column of the old state.
  __device__ ValuePlace source(long long j) const {
    if (j >= kept_) return {&params_.input, from_ + (j - kept_) * params_.input.strides[2]};
    if (before_.from == nullptr || j < before_.zeros) return {};
    return {before_.from, before_.offset + j * before_.step};
  }
  // Its place in the cache.
  __device__ long long offset(long long j) const { return to_ + j * cache().strides[2]; }

  // Column j, as the cache has it.
  __device__ std::uint64_t bits(long long j) const {
    const ValuePlace from = source(j);
    return from.tensor == nullptr ? 0 : bits_at(*from.tensor, from.offset, cache().dtype);
  }
  __device__ void store(long long j, std::uint64_t bits) const {
    store_bits(cache().dtype, cache().data, offset(j), bits);
  }

 private:
  __device__ const Operand<3>& cache() const { return params_.states.before; }

  const WindowParams& params_;
  const ValueRun before_;
  const long long kept_, from_, to_;
};

}  // namespace sluice
