// A group's sums on their way to the result: from pairs to vectors of eight neighbours, then the chain and the store.
#pragma once

#include "kernels/conv1d/long_filter/arguments.cuh"

namespace sluice {

// Of four parts of the group a lane has two columns of a row each (sum_output). Four lanes have all columns of the same
// rows: afterwards lane t of them has the row of part t, whole (vector_output). Both steps of a transposition of 4 x 4
// pairs.
__device__ __forceinline__ void exchange_pairs(float* values, int lane) {
  const auto swap = [&](bool upper, int apart, int first, int second) {
    const float received = __shfl_xor_sync(0xffffffffu, upper ? values[first] : values[second], apart);
    values[first] = upper ? received : values[first];
    values[second] = upper ? values[second] : received;
  };
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
#pragma unroll
  for (int i : {0, 1, 4, 5}) swap(odd, 1, i, i + 2);
#pragma unroll
  for (int i : {0, 1, 2, 3}) swap(upper, 2, i, i + 4);
}

// `group`: of the segment.
template <class Post, class Element>
__device__ __forceinline__ void finish_group(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                             int group, int lane, const float (&sums)[kGroupTiles][4]) {
  float values[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) values[i] = sums[sum_tile(i)][sum_register(i)];
#pragma unroll
  for (int v = 0; v < kLaneVectors; ++v) exchange_pairs(values + v * kVectorOutputs, lane);
  const int begin = segment.begin + group * kGroupOutputs, end = static_cast<int>(a.output_length);
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
