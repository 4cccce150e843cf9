// Copies the image under a tile, and the taps, to shared memory for Toeplitz products (toeplitz.cuh).
#pragma once

#include "kernels/operators/filter2d/tile_fetch.cuh"
#include "kernels/shared/mma/toeplitz.cuh"

namespace sluice {

template <class Element>
struct ToeplitzArguments : SamplingArguments<Element> {
  FastDivisor by_lanes;
};

template <class Element>
void fill(ToeplitzArguments<Element>& a, const Filter2dParams& params, const Filter2dPlan& plan) {
  fill(static_cast<SamplingArguments<Element>&>(a), params, plan);
  a.by_lanes = FastDivisor(plan.lanes);
}

// Copies the image under the tile.
template <class Pre, class Element>
__device__ __forceinline__ void fetch_tile(const ToeplitzArguments<Element>& a, const TileCorner& corner,
                                           std::uint32_t tile) {
  if (has_words(a, corner, a.pitch_words * kWordElements<Element>)) {
    fetch_words<Pre>(a, corner, a.pitch_words, [&](int down, int word, const Word& values) {
      store_shared_word(tile + (down * a.pitch_words + word) * kWordBytes, values);
    });
    return;
  }
  auto* const to = static_cast<Element*>(__cvta_shared_to_generic(tile));
  const int pitch = a.pitch_words * kWordElements<Element>;
  fetch_elements<Pre, Element, Element>(
      a, corner, pitch, [&](int down, int across, Element value) { to[down * pitch + across] = value; });
}

// Both copies of the kernel's rows of taps.
template <class Element>
__device__ __forceinline__ void fetch_kernel(const ToeplitzArguments<Element>& a, long long channel, char* taps) {
  const long long* const strides = a.kernel.strides;
  const Element* const kernel = a.kernel.template as<const Element>() + channel * strides[0];
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll 2
  for (int row = static_cast<int>(threadIdx.x) / 32; row < a.kernel_height; row += warps) {
    fill_tap_copies<Element>(taps + row * 2 * tap_copy_bytes(a.steps), a.steps, lane, 32, [&](int column) {
      const bool is_tap = static_cast<unsigned>(column) < static_cast<unsigned>(a.kernel_width);
      return is_tap ? kernel[row * strides[1] + column * strides[2]] : convert<Element>(0.0f);
    });
  }
}

}  // namespace sluice
