// A kernel's epilogue: applies the chain to the accumulators, rounds and stores them.
//
//   accumulators   [ slice 0 | slice 1 | ... ]      `Width` values each, contiguous in the result
//
// The kernel gives a slice's place in a tensor of the result's shape, once, for the chain's operands and for the
// output:
//
//   place_of(strides, slice) -> Place    offset and stride by these strides; first <= i < last: the values that exist
//
// The number of slices depends on a kernel's registers: one with more accumulators calls this several times.
#pragma once

#include <type_traits>

#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/store.cuh"
#include "kernels/shared/stages/place.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// Issues the loads of the chain's operands; the result is passed to `apply`.
template <int Width, int Slices, class Chain, class T, int Rank, class PlaceOf>
__device__ __forceinline__ auto load_operands(const Chain& chain, const ChainArguments<T, Rank>& arguments,
                                              const PlaceOf& place_of) {
  return chain.template load<Width, Slices>([&arguments, place_of](int operand, int slice) {
    const auto& tensor = arguments.operands[operand];
    Place place = place_of(tensor.strides, slice);
    place.extent = tensor.extent;
    return place;
  });
}

// `store(to, slice, values)` for each slice, where `to` is a null pointer of the output's element type.
template <int Width, int Slices, class T, class Store>
__device__ __forceinline__ void store_slices(DType dtype, const T* values, const Store& store) {
  with_element_type(dtype, [&](auto* tag) {
    using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
#pragma unroll
    for (int s = 0; s < Slices; ++s) store(static_cast<Out*>(nullptr), s, values + s * Width);
  });
}

// Applies the chain to the values. Operands are loaded here, after the sums, whose registers they reuse.
template <class Chain, int Width, int Slices, class T, int Rank, class PlaceOf>
__device__ __forceinline__ void run_chain(const ChainArguments<T, Rank>& arguments, const PlaceOf& place_of,
                                          T (&values)[Width * Slices]) {
  const Chain chain{arguments};
  chain.template apply<Width, Slices>(values, load_operands<Width, Slices>(chain, arguments, place_of));
}

// Applies the chain and stores the values at any place. `dtype`: the output's, which a linked kernel knows.
template <class Chain, int Width, int Slices, class T, int Rank, class PlaceOf>
__device__ __forceinline__ void finish_slices(const ChainArguments<T, Rank>& arguments, const Operand<Rank>& output,
                                              DType dtype, const PlaceOf& place_of, T (&values)[Width * Slices]) {
  run_chain<Chain, Width, Slices>(arguments, place_of, values);
  store_slices<Width, Slices>(dtype, values, [&](auto* tag, int slice, const T* own) {
    using Out = std::remove_pointer_t<decltype(tag)>;
    const Place place = place_of(output.strides, slice);
    store_elements<Out, Width>(output.template as<Out>() + place.offset, place.stride, place.first, place.last, own);
  });
}

}  // namespace sluice
