// A group's sums on their way to the result: from pairs to vectors of eight neighbours, then the chain and the store.
#pragma once

#include "kernels/conv1d/long_filter/arguments.cuh"

namespace sluice {

// Of four parts of the group a lane has two columns of a row each (sum_output), `values[i]` and the next of part i / 2.
// Four lanes have all columns of the same rows: afterwards lane t of them has the row of part t, whole (vector_output).
// Both steps of a transposition of 4 x 4; `swap(upper, apart, i, j)`: entry j of the lower lane with i of the upper
// one.
template <class Swap>
__device__ __forceinline__ void transpose_quad(int lane, const Swap& swap) {
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
#pragma unroll
  for (int i : {0, 2}) swap(odd, 1, i, i + 1);
#pragma unroll
  for (int i : {0, 1}) swap(upper, 2, i, i + 2);
}

template <class T>
__device__ __forceinline__ void swap_lanes(bool upper, int apart, T& first, T& second) {
  const T received = __shfl_xor_sync(0xffffffffu, upper ? first : second, apart);
  first = upper ? received : first;
  second = upper ? second : received;
}

// The chain where it asks for no tensors, on the sums where they are, and their store as the input's type: pairs of
// sums are words' lanes.
template <class Post, class Element>
__device__ __forceinline__ void finish_in_place(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                                int begin, int lane, float (&values)[kLaneSums]) {
  run_chain<Post, kVectorOutputs, kLaneVectors>(a.post, [](const long long*, int) { return Place{}; }, values);
  const int end = static_cast<int>(a.output_length);
  const bool is_whole = begin >= 0 && begin + kGroupOutputs <= end;
  Element* const row = a.output.template as<Element>() + segment.result;
#pragma unroll
  for (int v = 0; v < kLaneVectors; ++v) {
    Word word;
    pack<Element, kVectorOutputs>(values + v * kVectorOutputs, word.lanes);
    transpose_quad(
        lane, [&](bool upper, int apart, int i, int j) { swap_lanes(upper, apart, word.lanes[i], word.lanes[j]); });
    const int at = begin + vector_output(lane, v);
    if (is_whole || (at >= 0 && at + kVectorOutputs <= end)) {
      store_global_word(row + at, word);
    } else {
      float own[kVectorOutputs];
      unpack<Element>(word, own);
      store_elements<Element, kVectorOutputs>(row + at, 1, max_of(-at, 0), min_of(end - at, kVectorOutputs), own);
    }
  }
}

// `group`: of the segment.
template <class Post, class Element>
__device__ __forceinline__ void finish_group(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                             int group, int lane, const float (&sums)[kGroupTiles][4]) {
  float values[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) values[i] = sums[sum_tile(i)][sum_register(i)];
  const int begin = segment.begin + group * kGroupOutputs, end = static_cast<int>(a.output_length);
  if (!Post{a.post}.has_operands() && a.output_type() == kDType<Element>) {
    return finish_in_place<Post>(a, segment, begin, lane, values);
  }
#pragma unroll
  for (int v = 0; v < kLaneVectors; ++v) {
    float* const own = values + v * kVectorOutputs;
    transpose_quad(lane, [&](bool upper, int apart, int i, int j) {
      swap_lanes(upper, apart, own[2 * i], own[2 * j]);
      swap_lanes(upper, apart, own[2 * i + 1], own[2 * j + 1]);
    });
  }
  // Of a vector, in a tensor whose row begins at `row`.
  const auto place_in = [&](long long row, long long stride, int vector) {
    const int at = begin + vector_output(lane, vector);
    const int last = min_of(max_of(end - at, 0), kVectorOutputs);
    return Place{.offset = row + at * stride, .stride = stride, .first = max_of(-at, 0), .last = last};
  };
  const auto place_of = [&](const long long* strides, int vector) {
    return place_in(segment.batch * strides[0] + segment.channel * strides[1], strides[2], vector);
  };
  run_chain<Post, kVectorOutputs, kLaneVectors>(a.post, place_of, values);
  store_slices<kVectorOutputs, kLaneVectors>(a.output_type(), values, [&](auto* tag, int vector, const float* own) {
    using Out = std::remove_pointer_t<decltype(tag)>;
    const Place place = place_in(segment.result, 1, vector);
    store_elements<Out, kVectorOutputs>(a.output.template as<Out>() + place.offset, 1, place.first, place.last, own);
  });
}

}  // namespace sluice
