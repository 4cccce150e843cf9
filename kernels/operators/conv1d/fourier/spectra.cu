// The spectra of all filters, a block for each partition of one, and the roots of unity in one more block.
#include "kernels/operators/conv1d/fourier/arguments.cuh"
#include "kernels/operators/conv1d/fourier/launch.h"
#include "kernels/operators/conv1d/fourier/policy.h"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

struct SpectraArguments {
  Operand<2> weight;
  int taps, partitions, partition_taps, spectra;
  FourierTables tables;
};

__device__ __forceinline__ Roots roots_of(bool is_of_row, int thread) {
  const int x = is_of_row ? kWithinRow * lane_of_row(thread) : thread;
  Roots roots;
#pragma unroll
  for (int i = 0; i < kKeptRoots; ++i) {
    Complex& root = roots.kept[i];
    sincospif(static_cast<float>(-2 * x * kept_power(i)) / kFourierPoints, &root.im, &root.re);
  }
  return roots;
}

__device__ __forceinline__ void store_roots(const SpectraArguments& a, bool is_of_row, int thread) {
  const Roots roots = roots_of(is_of_row, thread);
  Word words[kWordsOfRoots];
  __builtin_memcpy(words, &roots, sizeof(words));
#pragma unroll
  for (int i = 0; i < kWordsOfRoots; ++i) a.tables.roots[root_word(is_of_row, thread, i)] = words[i];
}

__global__ void __launch_bounds__(kFourierThreads, 2) spectra_kernel(const __grid_constant__ SpectraArguments a) {
  begin_next();
  extern __shared__ Word shared[];
  auto* const exchange = reinterpret_cast<Complex*>(shared);
  const int thread = static_cast<int>(threadIdx.x), spectrum = static_cast<int>(blockIdx.x);
  if (spectrum == a.spectra) {
    store_roots(a, false, thread);
    if (thread < kFourierRadix) store_roots(a, true, thread);
    return;
  }
  const int channel = spectrum / a.partitions, partition = spectrum - channel * a.partitions;
  const auto tap = [&](int k) {
    return load_as<float>(a.weight.data, a.weight.dtype, channel * a.weight.strides[0] + k * a.weight.strides[1]);
  };
  unsigned largest[1] = {0};
#pragma unroll 4
  for (int k = thread; k < a.taps; k += kFourierThreads) largest[0] = max_of(largest[0], magnitude_bits(tap(k)));
  largest_of_block(largest, reinterpret_cast<unsigned*>(exchange + kExchangePlaces));
  const bool is_finite = is_finite_magnitude(largest[0]);
  const int exponent = biased_exponent(largest[0]);
  if (partition == 0 && thread == 0) a.tables.exponents[channel] = is_finite ? exponent : kFiniteExponents;

  const int first = partition * a.partition_taps, taps = min_of(a.partition_taps, a.taps - first);
  const float down = two_to_the(kExponentOfOne - exponent);
  Points points;
#pragma unroll
  for (int i = 0; i < kFourierRadix; ++i) {
    const int k = thread + i * kFourierThreads;
    points.set(i, {k < taps ? tap(first + k) * down : 0.0f, 0.0f});
  }
  there(FourierThread{points, roots_of}, exchange);
  // Conjugated: a convolution of neural networks is a correlation.
  Word* const to = a.tables.spectra + static_cast<long long>(spectrum) * kSpectrumWords;
#pragma unroll
  for (int i = 0; i < kFourierRadix / kComplexesOfWord; ++i) {
    Complex factors[kComplexesOfWord];
#pragma unroll
    for (int j = 0; j < kComplexesOfWord; ++j) {
      const Complex point = points.at(kComplexesOfWord * i + j);
      factors[j] = {point.re, -point.im};
    }
    Word word;
    __builtin_memcpy(&word, factors, sizeof(word));
    to[spectrum_word(thread, i)] = word;
  }
}

}  // namespace

cudaError_t launch_spectra(const Conv1dParams& params, const FourierPlan& plan, void* workspace, cudaStream_t stream) {
  const long long spectra = params.channels * plan.partitions;
  const SpectraArguments a{.weight = params.weight,
                           .taps = params.taps,
                           .partitions = plan.partitions,
                           .partition_taps = plan.partition_taps,
                           .spectra = static_cast<int>(spectra),
                           .tables = FourierTables(workspace, spectra)};
  return launch_kernel(spectra_kernel, spectra + 1, kFourierThreads, kFourierSharedBytes, stream, a);
}

}  // namespace sluice
