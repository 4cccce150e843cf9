// Arguments of the Fourier method's kernels, and their segments.
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/operators/conv1d/fourier/workspace_layout.h"

namespace sluice {

// In the workspace, in this order.
struct FourierTables {
  Word* roots;     // roots of all threads, then roots of a row's lanes (root_word)
  Word* spectra;   // spectra of each channel and partition (spectrum_word)
  int* exponents;  // exponents of each channel's taps: biased_exponent, or kFiniteExponents where one is not finite

  __host__ __device__ FourierTables(void* workspace, long long spectra_of_all)
      : roots(static_cast<Word*>(workspace)),
        spectra(roots + kRootWords),
        exponents(reinterpret_cast<int*>(spectra + spectra_of_all * kSpectrumWords)) {}
  FourierTables() = default;
};

struct FourierArguments : Conv1dTensors, FourierPlan {
  FourierTables tables;
  FastDivisor by_pairs, by_segments, by_multiplier;
  ChainArguments<float, 3> pre, post;

  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output.dtype); }
  __device__ float tap(int channel, int k) const {
    return load_as<float>(weight.data, known_dtype(LinkedTensor::weight, weight.dtype),
                          channel * weight.strides[0] + k * weight.strides[1]);
  }
  __device__ float bias_of(int channel) const {
    if (!bias.exists()) return 0.0f;
    return load_as<float>(bias.data, known_dtype(LinkedTensor::bias, bias.dtype), channel * bias.strides[0]);
  }
};

// `index` counts a channel's segments, sample after sample. The segment after the last has no inputs and no outputs.
struct FourierSegment {
  int batch, channel, input_channel;
  int begin;            // its first output
  int outputs, length;  // existing outputs of the segment, and inputs of the row

  __device__ __forceinline__ FourierSegment(const FourierArguments& a, int channel, int index) : channel(channel) {
    const bool exists = index < a.segments;
    batch = exists ? static_cast<int>(a.by_segments.quotient_of_31_bits(index)) : 0;
    input_channel = static_cast<int>(a.by_multiplier.quotient_of_31_bits(channel));
    begin = exists ? (index - batch * static_cast<int>(a.segments_per_row)) * a.segment : 0;
    outputs = exists ? min_of(a.segment, static_cast<int>(a.output_length) - begin) : 0;
    length = exists ? static_cast<int>(a.length) : 0;
  }
};

// A Word that an earlier kernel wrote. Volatile, so that the compiler does not hoist it: registers hold the points.
__device__ __forceinline__ Word load_table_word(const Word* from) {
  Word word;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.lanes[0]), "=r"(word.lanes[1]), "=r"(word.lanes[2]), "=r"(word.lanes[3])
               : "l"(__cvta_generic_to_global(from)));
  return word;
}

__device__ __forceinline__ unsigned magnitude_bits(float value) { return __float_as_uint(value) & 0x7fffffffu; }

// The maximum of each value over the block, through `scratch` in shared memory: one for each value and warp.
template <int Count>
__device__ __forceinline__ void largest_of_block(unsigned (&values)[Count], unsigned* scratch) {
  constexpr int kWarps = kFourierThreads / 32;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    values[i] = __reduce_max_sync(0xffffffffu, values[i]);
    if (threadIdx.x % 32 == 0) scratch[i * kWarps + threadIdx.x / 32] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Count * kWarps; ++i) values[i / kWarps] = max_of(values[i / kWarps], scratch[i]);
}

__device__ __forceinline__ float two_to_the(int exponent) { return __uint_as_float(bits_of_power(exponent)); }

// A team as one thread of a GPU sees it, with the thread's points.
template <class LoadRoots>
struct FourierThread {
  Points& points;
  LoadRoots load_roots;  // (is_of_row, thread)

  template <class Step>
  __device__ __forceinline__ void each(const Step& step) const {
    step(static_cast<int>(threadIdx.x), points);
  }
  __device__ __forceinline__ void sync_all() const { __syncthreads(); }
  __device__ __forceinline__ void sync_row() const { __syncwarp(); }
  __device__ __forceinline__ Roots all_roots(int thread) const { return load_roots(false, thread); }
  __device__ __forceinline__ Roots row_roots(int thread) const { return load_roots(true, thread); }
};

}  // namespace sluice
