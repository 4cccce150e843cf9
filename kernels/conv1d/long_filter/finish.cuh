// A group's sums on their way to the result: pairs of neighbours, the chain, and the store.
#pragma once

#include "kernels/conv1d/long_filter/arguments.cuh"
#include "kernels/stages/no_chain.cuh"

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

// Pairs of the input's type, from the sums where they are: each store of a warp is a line of 128 bytes, as wide as
// vectors would be, and no lane waits for another. `row`: the lane's pair of the row's output 0; `begin`: the group's
// first output.
template <class Element>
__device__ __forceinline__ void store_pairs(Element* row, int begin, int lane, int end,
                                            const float (&values)[kLaneSums]) {
  Element* const to = row + begin;
  if (begin >= 0 && begin + kGroupOutputs <= end) {
#pragma unroll
    for (int part = 0; part < kGroupParts; ++part) {
      store_vector<Element, 2>(to + part * kPartOutputs, values + 2 * part);
    }
    return;
  }
#pragma unroll
  for (int part = 0; part < kGroupParts; ++part) {
    if (begin + part * kPartOutputs >= end) break;
    const int at = begin + part * kPartOutputs + lane * 2;
    store_elements<Element, 2>(to + part * kPartOutputs, 1, max_of(-at, 0), min_of(end - at, 2), values + 2 * part);
  }
}

// As vectors of eight neighbours, which the chain's tensors are loaded as, and of any type.
template <class Post, class Element>
__device__ __forceinline__ void finish_vectors(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                               int begin, int lane, float (&values)[kLaneSums]) {
  transpose_quad(lane, [&](bool upper, int apart, int i, int j) {
    swap_lanes(upper, apart, values[2 * i], values[2 * j]);
    swap_lanes(upper, apart, values[2 * i + 1], values[2 * j + 1]);
  });
  const int at = begin + vector_output(lane), end = static_cast<int>(a.output_length);
  const int first = max_of(-at, 0), last = min_of(max_of(end - at, 0), kVectorOutputs);
  const auto place_of = [&](const long long* strides, int) {
    const long long row = segment.batch * strides[0] + segment.channel * strides[1];
    return Place{.offset = row + at * strides[2], .stride = strides[2], .first = first, .last = last};
  };
  run_chain<Post, kVectorOutputs, 1>(a.post, place_of, values);
  store_slices<kVectorOutputs, 1>(a.output_type(), values, [&](auto* tag, int, const float* own) {
    using Out = std::remove_pointer_t<decltype(tag)>;
    Out* const to = a.output.template as<Out>() + segment.result + at;
    store_elements<Out, kVectorOutputs>(to, 1, first, last, own);
  });
}

// `begin`: the group's first output in its row. The kernel without chains is for results of the input's type.
template <class Post, class Element>
__device__ __forceinline__ void finish_group(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                             int begin, int lane, const float (&sums)[kGroupTiles][4]) {
  float values[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) values[i] = sums[i / 4][i % 4];
  if constexpr (!std::is_same_v<Post, NoChain>) {
    if (Post{a.post}.has_operands() || a.output_type() != kDType<Element>) {
      return finish_vectors<Post>(a, segment, begin, lane, values);
    }
  }
  run_chain<Post, kVectorOutputs, 1>(a.post, [](const long long*, int) { return Place{}; }, values);
  store_pairs(a.output.template as<Element>() + (segment.result + lane * 2), begin, lane,
              static_cast<int>(a.output_length), values);
}

}  // namespace sluice
