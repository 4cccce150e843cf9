// Depthwise conv1d by Fourier transforms (overlap-save): one block, two segments of one channel.
//
//   row        ..............|<---- segment ---->|................     outputs
//                            |<---- segment ---->|<- taps - 1 ->|      inputs, kFourierPoints of them
//
//   segment 2 i     --> real parts       --\                                     /--> real parts --> `post` --> store
//   segment 2 i + 1 --> imaginary parts  --> there, times the spectrum, back ---<
//                                                                                \--> imaginary parts --> ...
//
// The taps are real, so the two segments do not mix. The circular convolution of kFourierPoints is right wherever a
// window does not wrap around: at the segment's outputs; other points are dropped. A longer filter is partitioned;
// each partition has its own inputs, and their products are summed before the inverse transform.
//
// Each segment and each channel's filter are scaled near 1 by a power of two: the error of a transform is relative to
// its largest input, and the two segments of a block are unrelated. A transform would spread an input or a tap that is
// not finite to all outputs: such segments are summed tap by tap, in the taps' order.
#pragma once

#include "kernels/operators/conv1d/fourier/arguments.cuh"
#include "kernels/operators/conv1d/fourier/policy.h"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// A thread's points of one segment go through a chain as slices of eight elements that are kFourierThreads apart.
inline constexpr int kSliceLength = kFourierChainWidth * kFourierThreads;

// The place of a slice: its positions are thread + i kFourierThreads, and exist if 0 <= from + position < end.
__device__ __forceinline__ Place place_of_slice(long long row, long long stride, int from, int end, int slice) {
  const int at = from + static_cast<int>(threadIdx.x) + slice * kSliceLength;
  const auto count = [](int distance) {  // positions before it, kFourierThreads apart; distances may be negative
    const int steps = (distance + kFourierThreads - 1) / kFourierThreads;
    return min_of(distance > 0 ? steps : 0, kFourierChainWidth);
  };
  return {
      .offset = row + at * stride, .stride = kFourierThreads * stride, .first = count(-at), .last = count(end - at)};
}

// Rounded to the input's dtype.
__device__ __forceinline__ float rounded_as(DType dtype, float value) {
  switch (dtype) {
    case DType::float16: return convert<float>(convert<__half>(value));
    case DType::bfloat16: return convert<float>(convert<__nv_bfloat16>(value));
    default: return value;
  }
}

// A thread's inputs of a segment for one partition of the filter: point i is position thread + i kFourierThreads. Zeros
// outside of the row and its history.
template <class Pre>
__device__ __forceinline__ void load_segment(const FourierArguments& a, const FourierSegment& segment, int partition,
                                             float (&values)[kFourierRadix]) {
  const int from = segment.begin - static_cast<int>(a.padding) + partition * a.partition_taps;
  const int first = from + static_cast<int>(threadIdx.x);
  const auto is_inside = [&](int i) {
    return static_cast<unsigned>(first + i * kFourierThreads) < static_cast<unsigned>(segment.length);
  };
  const auto load = [&]<class Element>(const Element* row) {
    Element elements[kFourierRadix];  // all in flight before the first is used
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) {
      elements[i] = is_inside(i) ? row[i * kFourierThreads] : convert<Element>(0.0f);
    }
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) values[i] = convert<float>(elements[i]);
  };
  const long long row = segment.batch * a.input.strides[0] + segment.input_channel * a.input.strides[1] + first;
  switch (a.input.dtype) {
    case DType::float16: load(a.input.as<const __half>() + row); break;
    case DType::bfloat16: load(a.input.as<const __nv_bfloat16>() + row); break;
    default: load(a.input.as<const float>() + row); break;
  }
  if (!Pre{a.pre}.empty()) {
    float chained[kFourierRadix];
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) chained[i] = values[i];
    const auto place_of = [&](const long long* strides, int slice) {
      const long long start = segment.batch * strides[0] + segment.input_channel * strides[1];
      return place_of_slice(start, strides[2], from, segment.length, slice);
    };
    run_chain<Pre, kFourierChainWidth, kFourierSlices>(a.pre, place_of, chained);
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) {
      if (is_inside(i)) values[i] = rounded_as(a.input.dtype, chained[i]);
    }
  }
  if (a.history.exists() && from < 0 && segment.outputs > 0) {
    const long long start = segment.batch * a.history.strides[0] + segment.input_channel * a.history.strides[1];
#pragma unroll 1
    for (int i = 0; i < kFourierRadix; ++i) {
      const int place = first + i * kFourierThreads + static_cast<int>(a.padding);
      if (place < 0 || place >= a.padding) continue;
      const DType dtype = known_dtype(LinkedTensor::history, a.history.dtype);
      const float known = load_as<float>(a.history.data, dtype, start + place * a.history.strides[2]);
      const float value = rounded_as(a.input.dtype, known);
#pragma unroll
      for (int j = 0; j < kFourierRadix; ++j) values[j] = i == j ? value : values[j];
    }
  }
}

// Sums inputs or taps that are not finite: each output on its own, its taps in order.
template <class Pre>
__device__ __forceinline__ void sum_directly(const FourierArguments& a, const FourierSegment (&segments)[2],
                                             Complex* inputs, Points& points) {
  const int thread = static_cast<int>(threadIdx.x);
  Points sums{};
#pragma unroll 1
  for (int partition = 0; partition < a.partitions; ++partition) {
    load_segment<Pre>(a, segments[0], partition, points.re);
    load_segment<Pre>(a, segments[1], partition, points.im);
    __syncthreads();  // the previous partition is no longer read
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) inputs[thread + i * kFourierThreads] = points.at(i);
    __syncthreads();
    const int first = partition * a.partition_taps, taps = min_of(a.partition_taps, a.taps - first);
#pragma unroll 1
    for (int k = 0; k < taps; ++k) {
      const float tap = a.tap(segments[0].channel, first + k);
#pragma unroll
      for (int i = 0; i < kFourierRadix; ++i) {
        // Windows that wrap around belong to no output.
        const Complex input = inputs[(thread + i * kFourierThreads + k) % kFourierPoints];
        sums.set(i, {fmaf(tap, input.re, sums.re[i]), fmaf(tap, input.im, sums.im[i])});
      }
    }
  }
  points = sums;
}

// Scales a segment's sums, adds the bias, applies `post` and stores.
template <class Post>
__device__ __forceinline__ void finish_segment(const FourierArguments& a, const FourierSegment& segment, Scale scale,
                                               float bias, float (&values)[kFourierRadix]) {
  const float first = two_to_the(scale.first), second = two_to_the(scale.second);
#pragma unroll
  for (int i = 0; i < kFourierRadix; ++i) values[i] = fmaf(values[i] * first, second, bias);
  // Places count from the segment's start, so `first` is 0.
  const auto place_of = [&](const long long* strides, int slice) {
    const long long row = segment.batch * strides[0] + segment.channel * strides[1] + segment.begin * strides[2];
    return place_of_slice(row, strides[2], 0, segment.outputs, slice);
  };
  run_chain<Post, kFourierChainWidth, kFourierSlices>(a.post, place_of, values);
  store_slices<kFourierChainWidth, kFourierSlices>(a.output_type(), values,
                                                   [&](auto* tag, int slice, const float* own) {
                                                     using Out = std::remove_pointer_t<decltype(tag)>;
                                                     const Place place = place_of(a.output.strides, slice);
                                                     Out* const to = a.output.template as<Out>() + place.offset;
#pragma unroll
                                                     for (int i = 0; i < kFourierChainWidth; ++i) {
                                                       if (i < place.last)
                                                         to[i * kFourierThreads] = convert<Out>(own[i]);
                                                     }
                                                   });
}

// `Partitioned`: the filter has several partitions, whose products are summed.
template <class Chains, bool Partitioned>
__device__ __forceinline__ void fourier(const FourierArguments& a) {
  using Pre = typename Chains::Pre;
  extern __shared__ Word shared[];
  auto* const exchange = reinterpret_cast<Complex*>(shared);
  auto* const scratch = reinterpret_cast<unsigned*>(exchange + kExchangePlaces);
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int channel = static_cast<int>(a.by_pairs.quotient_of_31_bits(block));
  const int pair = block - channel * static_cast<int>(a.pairs);
  const FourierSegment segments[2] = {{a, channel, 2 * pair}, {a, channel, 2 * pair + 1}};
  const int partitions = Partitioned ? a.partitions : 1;

  Points points;
  unsigned largest[2] = {0, 0};  // magnitudes, as bits
#pragma unroll 1
  for (int partition = 0; partition < partitions; ++partition) {
    load_segment<Pre>(a, segments[0], partition, points.re);
    load_segment<Pre>(a, segments[1], partition, points.im);
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) {
      largest[0] = max_of(largest[0], magnitude_bits(points.re[i]));
      largest[1] = max_of(largest[1], magnitude_bits(points.im[i]));
    }
  }
  largest_of_block(largest, scratch);
  await_previous();  // the spectra kernel has completed
  const int filter_exponent = a.tables.exponents[channel];
  const bool is_finite =
      is_finite_magnitude(largest[0]) && is_finite_magnitude(largest[1]) && filter_exponent < kFiniteExponents;
  Scale scales[2] = {{0, 0}, {0, 0}};
  if (is_finite) {
    const int exponents[2] = {biased_exponent(largest[0]), biased_exponent(largest[1])};
    scales[0] = scale_of(exponents[0], filter_exponent), scales[1] = scale_of(exponents[1], filter_exponent);
    const float down[2] = {two_to_the(kExponentOfOne - exponents[0]), two_to_the(kExponentOfOne - exponents[1])};
    const auto load_roots = [&](bool is_of_row, int which) {
      Word words[kWordsOfRoots];
#pragma unroll
      for (int i = 0; i < kWordsOfRoots; ++i) {
        words[i] = load_table_word(a.tables.roots + root_word(is_of_row, which, i));
      }
      Roots roots;
      __builtin_memcpy(&roots, words, sizeof(roots));
      return roots;
    };
    const FourierThread<decltype(load_roots)> team{points, load_roots};
    Points sums{};
#pragma unroll 1
    for (int partition = 0; partition < partitions; ++partition) {
      if constexpr (Partitioned) {
        load_segment<Pre>(a, segments[0], partition, points.re);
        load_segment<Pre>(a, segments[1], partition, points.im);
        __syncthreads();  // the previous partition's exchange is no longer read
      }
#pragma unroll
      for (int i = 0; i < kFourierRadix; ++i) points.re[i] *= down[0], points.im[i] *= down[1];
      there(team, exchange);
      const Word* const spectrum =
          a.tables.spectra + (static_cast<long long>(channel) * partitions + partition) * kSpectrumWords;
#pragma unroll
      for (int i = 0; i < kFourierRadix / kComplexesOfWord; ++i) {
        const Word word = load_table_word(spectrum + spectrum_word(thread, i));
        Complex factors[kComplexesOfWord];
        __builtin_memcpy(factors, &word, sizeof(word));
#pragma unroll
        for (int j = 0; j < kComplexesOfWord; ++j) {
          const int at = kComplexesOfWord * i + j;
          sums.set(at, add_product(points.at(at), factors[j], sums.at(at)));
        }
      }
    }
    points = sums;
    back(team, exchange);
  } else {
    sum_directly<Pre>(a, segments, exchange, points);
  }
  const float bias = a.bias_of(channel);
  finish_segment<typename Chains::Post>(a, segments[0], scales[0], bias, points.re);
  finish_segment<typename Chains::Post>(a, segments[1], scales[1], bias, points.im);
}

template <bool Partitioned>
inline constexpr int kFourierBlocks = Partitioned ? kFourierBlocksPartitioned : kFourierBlocksOfOne;

// Without a chain.
template <bool Partitioned>
__global__ void __launch_bounds__(kFourierThreads, kFourierBlocks<Partitioned>)
    plain_fourier_kernel(const __grid_constant__ FourierArguments a) {
  fourier<NoChains, Partitioned>(a);
}

// One kernel for whole and partitioned filters: the sums are the same. A template, or it would be compiled into the
// modules of linked kernels too.
template <class Compute>
__global__ void __launch_bounds__(kFourierThreads, kFourierBlocks<true>)
    interpreted_fourier_kernel(const __grid_constant__ FourierArguments a) {
  fourier<ElementwiseChains<Compute>, true>(a);
}

}  // namespace sluice
