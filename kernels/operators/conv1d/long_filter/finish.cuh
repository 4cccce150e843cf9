// The epilogue of a warp tile: pairs of adjacent outputs, the chain, and the store.
#pragma once

#include "kernels/operators/conv1d/long_filter/arguments.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// A lane has two columns of one row in each of the warp tile's four quarters (sum_output): `values[i]` and the next in
// quarter i / 2. Four lanes have all columns of the same rows: afterwards lane t has the whole row of quarter t
// (vector_output). Both steps of a 4 x 4 transposition; `swap(upper, apart, i, j)`: entry j of the lower lane with i of
// the upper one.
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

// Stores pairs of the input's dtype without exchanging sums: each store of a warp is a line of 128 bytes, as wide as
// vectors would be. `row`: the lane's pair at the row's output 0; `begin`: the warp tile's first output.
template <class Element>
__device__ __forceinline__ void store_pairs(Element* row, int begin, int lane, int end,
                                            const float (&values)[kLaneSums]) {
  Element* const to = row + begin;
  if (begin >= 0 && begin + kOutputsPerWarp <= end) {
#pragma unroll
    for (int quarter = 0; quarter < kQuartersPerWarp; ++quarter) {
      store_vector<Element, 2>(to + quarter * kOutputsPerQuarter, values + 2 * quarter);
    }
    return;
  }
#pragma unroll
  for (int quarter = 0; quarter < kQuartersPerWarp; ++quarter) {
    if (begin + quarter * kOutputsPerQuarter >= end) break;
    const int at = begin + quarter * kOutputsPerQuarter + lane * 2;
    store_elements<Element, 2>(to + quarter * kOutputsPerQuarter, 1, max_of(-at, 0), min_of(end - at, 2),
                               values + 2 * quarter);
  }
}

// Vectors of eight contiguous outputs, as the chain's tensors are loaded, of any result dtype.
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

// `begin`: the warp tile's first output in its row. The kernel without chains is for results of the input's dtype.
template <class Post, class Element>
__device__ __forceinline__ void finish_warp_tile(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                                 int begin, int lane, const float (&sums)[kTilesPerWarp][4]) {
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
