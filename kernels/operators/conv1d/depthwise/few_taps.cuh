// Shared by the kernels for up to four taps.
#pragma once

#include "kernels/operators/conv1d/depthwise/arguments.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

template <class Element>
inline constexpr int kFewTapsWords = few_taps_words(kDType<Element>);
template <class Element>
inline constexpr int kFewTapsPositions = few_taps_positions(kDType<Element>);

template <class Element>
inline constexpr int kFewTapsRowBlocks = few_taps_row_blocks(kDType<Element>);
template <class Element>
inline constexpr int kFewTapsChannelBlocks = few_taps_channel_blocks(kDType<Element>);

// Four contiguous elements, as in memory: half a word of a half type, a word of float.
template <class Element>
struct Quad {
  static constexpr int kLanes = static_cast<int>(sizeof(Element));
  std::uint32_t lanes[kLanes];

  __device__ static Quad first_of(const Word& word) {
    Quad quad;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) quad.lanes[i] = word.lanes[i];
    return quad;
  }
  // Rounds values.
  __device__ static Quad of(const float* values) {
    Quad quad;
    pack<Element, 4>(values, quad.lanes);
    return quad;
  }
  // From an address aligned to its size.
  __device__ static Quad load(const Element* from) {
    if constexpr (kLanes == 4) return first_of(load_word(from));
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    return first_of(Word{{bits.x, bits.y, 0, 0}});
  }
  // To an address aligned to its size.
  __device__ void store(Element* to) const {
    if constexpr (kLanes == 4) {
      *reinterpret_cast<uint4*>(to) = uint4{lanes[0], lanes[1], lanes[2], lanes[3]};
    } else {
      *reinterpret_cast<uint2*>(to) = uint2{lanes[0], lanes[1]};
    }
  }
  __device__ void unpack_to(float* values) const {
    if constexpr (kLanes == 4) {
      unpack<Element>(Word{{lanes[0], lanes[1], lanes[2], lanes[3]}}, values);
    } else {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float2 pair = Pair<Element>::load(lanes[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
      }
    }
  }
};

// An undefined value: no instruction, where a zero would be one.
__device__ __forceinline__ std::uint32_t anything() {
  std::uint32_t bits;
  asm volatile("" : "=r"(bits));
  return bits;
}

// The taps of channels channel, channel + 1, ...
template <int Channels, int Taps, class Element>
__device__ __forceinline__ void load_few_taps(const Conv1dArguments<Element>& a, long long channel,
                                              float (&taps)[Channels][Taps]) {
  with_element_type(known_dtype(LinkedTensor::weight, a.weight.dtype), [&](auto* tag) {
    const auto* const from = static_cast<decltype(tag)>(a.weight.data) + channel * a.weight.strides[0];
#pragma unroll
    for (int c = 0; c < Channels; ++c) {
#pragma unroll
      for (int k = 0; k < Taps; ++k) {
        taps[c][k] = k < a.taps ? convert<float>(from[c * a.weight.strides[0] + k * a.weight.strides[1]]) : 0.0f;
      }
    }
  });
}

// The taps of four channels that are contiguous: Count quads.
template <int Count, int Taps, class Element>
__device__ __forceinline__ void load_quads_of_taps(const Element* from, float (&taps)[4][Taps]) {
  float values[4 * Count];
#pragma unroll
  for (int q = 0; q < Count; ++q) Quad<Element>::load(from + 4 * q).unpack_to(values + 4 * q);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int k = 0; k < Count; ++k) taps[c][k] = values[c * Count + k];
  }
}

// Calls `body` with `count` as a constant, 1 <= count <= Most.
template <int Most, class Body>
__device__ __forceinline__ void for_counts(int count, const Body& body) {
  if constexpr (Most > 1) {
    if (count < Most) return for_counts<Most - 1>(count, body);
  }
  body(std::integral_constant<int, Most>{});
}

}  // namespace sluice
