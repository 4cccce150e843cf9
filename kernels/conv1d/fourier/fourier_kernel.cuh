// Depthwise conv1d by Fourier transforms (overlap-save): one block, two segments of one channel.
//
//   row        ..............|<---- segment ---->|................     outputs
//                            |<---- segment ---->|<- taps - 1 ->|      inputs, kFourierPoints of them
//
//   segment 2 i     --> real parts       --\                                     /--> real parts --> `post` --> store
//   segment 2 i + 1 --> imaginary parts  --> there, times the spectrum, back ---<
//                                                                                \--> imaginary parts --> ...
//
// The taps are real, so that the two do not mix. The product's order in a circle of kFourierPoints gives right sums
// wherever a window does not run over the end, which are the segment's; the others are dropped. A filter of more taps
// is cut into parts, each with inputs of its own: their products are summed before the way back.
//
// Each segment is brought near 1 by a power of two, and so is each channel's filter: the error of a transform is
// relative to its largest input, and the two segments of a block have nothing to do with each other. Where an input or
// a tap is not finite it would be everywhere behind a transform: such segments are summed tap by tap, in the taps'
// order.
#pragma once

#include "kernels/common/launch.cuh"
#include "kernels/conv1d/fourier/arguments.cuh"
#include "kernels/conv1d/fourier/policy.h"
#include "kernels/stages/no_chain.cuh"

namespace sluice {

// A thread's points of one segment go through a chain as slices of eight, of neighbours that are kFourierThreads apart.
inline constexpr int kSliceLength = kFourierChainWidth * kFourierThreads;

// Which of a slice's points, `thread` + i kFourierThreads in positions, lie in 0 <= from + position < end.
__device__ __forceinline__ Place place_of_slice(long long row, long long stride, int from, int end, int slice) {
  const int at = from + static_cast<int>(threadIdx.x) + slice * kSliceLength;
  const auto count = [](int distance) {  // of positions before, kFourierThreads apart; distances may be negative
    const int steps = (distance + kFourierThreads - 1) / kFourierThreads;
    return min_of(distance > 0 ? steps : 0, kFourierChainWidth);
  };
  return {
      .offset = row + at * stride, .stride = kFourierThreads * stride, .first = count(-at), .last = count(end - at)};
}

// A value as the input's type has it.
__device__ __forceinline__ float rounded_as(DType dtype, float value) {
  switch (dtype) {
    case DType::float16: return convert<float>(convert<__half>(value));
    case DType::bfloat16: return convert<float>(convert<__nv_bfloat16>(value));
    default: return value;
  }
}

// A thread's inputs of a segment for one part of the filter: point i is position `thread` + i kFourierThreads. Zeros
// outside of the row and its history.
template <class Pre>
__device__ __forceinline__ void load_segment(const FourierArguments& a, const FourierSegment& segment, int part,
                                             float (&values)[kFourierRadix]) {
  const int from = segment.begin - static_cast<int>(a.padding) + part * a.part_taps;
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

// Where an input or a tap is not finite: every sum for itself, its taps in order.
template <class Pre>
__device__ __forceinline__ void sum_directly(const FourierArguments& a, const FourierSegment (&segments)[2],
                                             Complex* inputs, Points& points) {
  const int thread = static_cast<int>(threadIdx.x);
  Points sums{};
#pragma unroll 1
  for (int part = 0; part < a.parts; ++part) {
    load_segment<Pre>(a, segments[0], part, points.re);
    load_segment<Pre>(a, segments[1], part, points.im);
    __syncthreads();  // nobody reads the part before
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) inputs[thread + i * kFourierThreads] = points.at(i);
    __syncthreads();
    const int first = part * a.part_taps, taps = min_of(a.part_taps, a.taps - first);
#pragma unroll 1
    for (int k = 0; k < taps; ++k) {
      const float tap = a.tap(segments[0].channel, first + k);
#pragma unroll
      for (int i = 0; i < kFourierRadix; ++i) {
        // A window that runs over the end is no output's.
        const Complex input = inputs[(thread + i * kFourierThreads + k) % kFourierPoints];
        sums.set(i, {fmaf(tap, input.re, sums.re[i]), fmaf(tap, input.im, sums.im[i])});
      }
    }
  }
  points = sums;
}

// A segment's sums to its results.
template <class Post>
__device__ __forceinline__ void finish_segment(const FourierArguments& a, const FourierSegment& segment, Scale scale,
                                               float bias, float (&values)[kFourierRadix]) {
  const float first = two_to_the(scale.first), second = two_to_the(scale.second);
#pragma unroll
  for (int i = 0; i < kFourierRadix; ++i) values[i] = fmaf(values[i] * first, second, bias);
  // Places count from the segment's start, and first is 0.
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

// `InParts`: of a filter of more parts than one, whose products are summed.
template <class Chains, bool InParts>
__device__ __forceinline__ void fourier(const FourierArguments& a) {
  using Pre = typename Chains::Pre;
  extern __shared__ Word shared[];
  auto* const exchange = reinterpret_cast<Complex*>(shared);
  auto* const slots = reinterpret_cast<unsigned*>(exchange + kExchangePlaces);
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int channel = static_cast<int>(a.by_pairs.quotient_of_31_bits(block));
  const int pair = block - channel * static_cast<int>(a.pairs);
  const FourierSegment segments[2] = {{a, channel, 2 * pair}, {a, channel, 2 * pair + 1}};
  const int parts = InParts ? a.parts : 1;

  Points points;
  unsigned largest[2] = {0, 0};  // magnitudes, as bits
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
    load_segment<Pre>(a, segments[0], part, points.re);
    load_segment<Pre>(a, segments[1], part, points.im);
#pragma unroll
    for (int i = 0; i < kFourierRadix; ++i) {
      largest[0] = max_of(largest[0], magnitude_bits(points.re[i]));
      largest[1] = max_of(largest[1], magnitude_bits(points.im[i]));
    }
  }
  largest_of_block(largest, slots);
  await_previous();  // the spectra are there
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
    for (int part = 0; part < parts; ++part) {
      if constexpr (InParts) {
        load_segment<Pre>(a, segments[0], part, points.re);
        load_segment<Pre>(a, segments[1], part, points.im);
        __syncthreads();  // nobody reads the exchange of the part before
      }
#pragma unroll
      for (int i = 0; i < kFourierRadix; ++i) points.re[i] *= down[0], points.im[i] *= down[1];
      there(team, exchange);
      const Word* const spectrum = a.tables.spectra + (static_cast<long long>(channel) * parts + part) * kSpectrumWords;
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

template <bool InParts>
inline constexpr int kFourierBlocks = InParts ? kFourierBlocksInParts : kFourierBlocksOfOne;

// Without a chain.
template <bool InParts>
__global__ void __launch_bounds__(kFourierThreads, kFourierBlocks<InParts>)
    plain_fourier_kernel(const __grid_constant__ FourierArguments a) {
  fourier<NoChains, InParts>(a);
}

// One for filters of one part and of many: the sums are the same. A template, because what is none would come along in
// the modules of linked kernels.
template <class Compute>
__global__ void __launch_bounds__(kFourierThreads, kFourierBlocks<true>)
    interpreted_fourier_kernel(const __grid_constant__ FourierArguments a) {
  fourier<ElementwiseChains<Compute>, true>(a);
}

}  // namespace sluice
