// Replaces the chain in kernels that run without one, or with a linked one: an interpreter would take registers that
// the loads need.
#pragma once

namespace sluice {

struct NoChain {
  static constexpr bool kIsInline = true;  // little code: a kernel may repeat it
  template <class Arguments>
  __device__ explicit NoChain(const Arguments&) {}

  __device__ __forceinline__ static constexpr bool empty() { return true; }
  __device__ __forceinline__ static constexpr bool has_operands() { return false; }
  __device__ __forceinline__ static constexpr bool is_long() { return false; }

  template <int Width, int Slices, class PlaceOf>
  __device__ int load(const PlaceOf&) const {
    return 0;
  }
  template <int Width, int Slices, class T>
  __device__ void apply(T (&)[Width * Slices], int) const {}
};

struct NoChains {
  using Pre = NoChain;
  using Post = NoChain;
};

}  // namespace sluice
