// A chain left open when the kernel is compiled, and linked in at run time (kernels/linking).
//
//   kernel (LTO-IR, built)          chain (LTO-IR, compiled by NVRTC from kernels/linking/source.cpp)
//   sluice_post_operands()   <----  return 1;
//   sluice_post_load(...)    <----  operand0's loads
//   sluice_post_apply(...)   <----  v = v * number(0); v = v + operand0; v = silu(v);
//
// The linker inlines the functions, so values stay in registers, and operands that the chain does not have cost
// nothing.
#pragma once

#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/stages/linked_tensor.h"
#include "kernels/shared/stages/place.h"
#include "kernels/shared/stages/program.h"

extern "C" {
__device__ int sluice_dtype(int which);
__device__ int sluice_pre_stages();
__device__ int sluice_pre_operands();
__device__ int sluice_pre_is_long();
__device__ void sluice_pre_load(unsigned* lanes, const void* const* data, const sluice::Place* places);
__device__ void sluice_pre_apply(void* values, const void* headers, const unsigned* lanes, const void* const* data,
                                 const sluice::Place* places);
__device__ int sluice_post_stages();
__device__ int sluice_post_operands();
__device__ int sluice_post_is_long();
__device__ void sluice_post_load(unsigned* lanes, const void* const* data, const sluice::Place* places);
__device__ void sluice_post_apply(void* values, const void* headers, const unsigned* lanes, const void* const* data,
                                  const sluice::Place* places);
}

namespace sluice {

enum class ChainSite { pre, post };

// A tensor's dtype: in a linked module the linker makes it a constant, so that the code for other dtypes is removed.
__device__ __forceinline__ DType known_dtype([[maybe_unused]] LinkedTensor which, [[maybe_unused]] DType dtype) {
#ifdef SLUICE_LINKED_MODULE
  return static_cast<DType>(sluice_dtype(static_cast<int>(which)));
#else
  return dtype;
#endif
}

// Replaces InterpretedChain. Width and Slices have to be as in the linker's ChainCall.
template <class T, int Rank, ChainSite site>
struct LinkedChain {
  static constexpr bool kIsInline = true;  // little code: a kernel may repeat it
  const ChainArguments<T, Rank>& arguments;

  __device__ __forceinline__ bool empty() const {
    return (site == ChainSite::pre ? sluice_pre_stages() : sluice_post_stages()) == 0;
  }
  __device__ __forceinline__ bool has_operands() const {
    return (site == ChainSite::pre ? sluice_pre_operands() : sluice_post_operands()) > 0;
  }

  // Whether a copy for each of a hundred values would exceed the instruction cache.
  __device__ __forceinline__ bool is_long() const {
    return (site == ChainSite::pre ? sluice_pre_is_long() : sluice_post_is_long()) != 0;
  }

  // The operands' elements for Slices vectors, as in memory: 32-bit lanes, up to 8 bytes an element. And the places of
  // the operands that the chain writes.
  template <int Width, int Slices>
  struct Loads {
    unsigned lanes[kMaxOperands * Slices * Width * 2];
    const void* data[kMaxOperands];
    Place places[kMaxOperands * Slices];
  };

  // Issues the operands' loads, before the values are computed.
  template <int Width, int Slices, class PlaceOf>
  __device__ __forceinline__ Loads<Width, Slices> load(PlaceOf&& place_of) const {
    Loads<Width, Slices> loads;
    const int operands = site == ChainSite::pre ? sluice_pre_operands() : sluice_post_operands();
#pragma unroll
    for (int k = 0; k < kMaxOperands; ++k) {
      if (k >= operands) continue;
      loads.data[k] = arguments.operands[k].data;
#pragma unroll
      for (int g = 0; g < Slices; ++g) loads.places[k * Slices + g] = place_of(k, g);
    }
    if constexpr (site == ChainSite::pre) {
      sluice_pre_load(loads.lanes, loads.data, loads.places);
    } else {
      sluice_post_load(loads.lanes, loads.data, loads.places);
    }
    return loads;
  }

  template <int Width, int Slices>
  __device__ __forceinline__ void apply(T (&values)[Width * Slices], const Loads<Width, Slices>& loads) const {
    if constexpr (site == ChainSite::pre) {
      sluice_pre_apply(values, arguments.headers, loads.lanes, loads.data, loads.places);
    } else {
      sluice_post_apply(values, arguments.headers, loads.lanes, loads.data, loads.places);
    }
  }
};

}  // namespace sluice
