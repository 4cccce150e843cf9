// Shared by the kernels whose threads have a lane of channels: 32 bits of x, two half types or one float32.
//
//   x       | c0 c1 | c2 c3 | ...                    a lane each: a warp loads 128 contiguous bytes
//   state   | c0 c0 c0 c1 c1 c1 | c2 c2 c2 ...       a lane's rows are one 32-bit number per column
//   taps    | c0 c0 c0 c0 c1 c1 c1 c1 | ...          and its taps one per tap
//
// A thread with 16 bytes of x would read its rows in words that are 48 or 64 bytes from its neighbours' words, and
// write half a sector at a time.
#pragma once

#include "kernels/operators/causal_conv1d/light_chain.cuh"
#include "kernels/operators/causal_conv1d/update.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/vector.cuh"

namespace sluice {

inline constexpr int kLanesThreads = 128;  // not tuned
inline constexpr int kLanesWarps = kLanesThreads / 32;

template <class Element>
inline constexpr int kLaneChannels = 4 / static_cast<int>(sizeof(Element));

// Members that most calls read come first: each cache line of arguments is a miss at a kernel's start.
template <class Element>
struct LaneArguments {
  const Element* input;
  Element* output;
  Element* state;
  const Element* weight;                                // contiguous rows of taps from a 16-byte address on; else null
  const Element* bias;                                  // contiguous bias; else null
  long long input_stride, output_stride, state_stride;  // strides of sequences and slots
  int channels, sequences;
  long long column_lanes;      // lanes of channels between columns, if channels are contiguous; else 0
  FastDivisor channel_blocks;  // divides by a sequence's blocks of channels
  bool has_slots, silu;        // silu: after the sums, if the kernel has no chains
  UpdateTensors tensors;
};

template <class Element>
struct ChainedLaneArguments : LaneArguments<Element> {
  LightChain<float> pre, post;
};
template <class Arguments>
inline constexpr bool kHasLightChains = false;
template <class Element>
inline constexpr bool kHasLightChains<ChainedLaneArguments<Element>> = true;

// The block's row of work, the warp's first channel, and how many of its lanes have channels: below 1 past the last.
struct WarpPosition {
  int row, channel, lanes;
};
template <class Element>
__device__ __forceinline__ WarpPosition warp_position(const LaneArguments<Element>& a) {
  constexpr unsigned kChannels = 32 * kLaneChannels<Element>;
  const unsigned row = a.channel_blocks.quotient_of_31_bits(blockIdx.x);
  const unsigned block = blockIdx.x - row * static_cast<unsigned>(a.channel_blocks.divisor);
  const int channel = static_cast<int>((block * kLanesWarps + threadIdx.x / 32) * kChannels);
  return {static_cast<int>(row), channel, min((a.channels - channel) / kLaneChannels<Element>, 32)};
}

template <class Element>
__device__ __forceinline__ void unpack_lane(std::uint32_t bits, float* values) {
  if constexpr (sizeof(Element) == 2) {
    const float2 pair = Pair<Element>::load(bits);
    values[0] = pair.x;
    values[1] = pair.y;
  } else {
    values[0] = __uint_as_float(bits);
  }
}

template <class Element>
__device__ __forceinline__ std::uint32_t pack_lane(const float* values) {
  std::uint32_t bits;
  pack<Element, kLaneChannels<Element>>(values, &bits);
  return bits;
}

__device__ __forceinline__ std::uint32_t load_lane(const void* address) {
  return *static_cast<const std::uint32_t*>(address);
}
__device__ __forceinline__ void store_lane(void* address, std::uint32_t bits) {
  *static_cast<std::uint32_t*>(address) = bits;
}

// Prefetches a number: a sequence's numbers are read in branches, one after another, and each read would wait for
// memory.
__device__ __forceinline__ void fetch_early(const Indices& indices, long long i) {
  if (!indices.exists()) return;
  [[maybe_unused]] std::uint32_t unused;
  const char* const at = static_cast<const char*>(indices.data) + i * indices.strides[0] * (indices.is_wide ? 8 : 4);
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(unused) : "l"(__cvta_generic_to_global(at)));
}

// `Count` contiguous 32-bit numbers, in one access if their bytes are a power of two.
template <int Count>
__device__ __forceinline__ void load_lanes(const void* address, std::uint32_t* lanes) {
  if constexpr (Count == 4) {
    const Word word = load_word(address);
#pragma unroll
    for (int i = 0; i < 4; ++i) lanes[i] = word.lanes[i];
  } else if constexpr (Count == 2) {
    const uint2 pair = *static_cast<const uint2*>(address);
    lanes[0] = pair.x;
    lanes[1] = pair.y;
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) lanes[i] = static_cast<const std::uint32_t*>(address)[i];
  }
}

// The taps and the bias of a lane of channels. `load` issues the loads, `unpack` is their first use. Only kernels with
// chains take weights of other dtypes or strides: this code, even if not executed, would be among the instructions that
// each block fetches.
template <class Element, int Taps, bool AnyWeight>
struct LaneTaps {
  static constexpr int kEach = kLaneChannels<Element>;
  float taps[kEach][Taps], bias[kEach];

  __device__ __forceinline__ void load(const LaneArguments<Element>& a, int c) {
    if (!AnyWeight || a.weight != nullptr) {
      load_lanes<Taps>(a.weight + static_cast<long long>(c) * Taps, tap_bits_);
    }
    bias_bits_ = a.bias != nullptr ? load_lane(a.bias + c) : 0;  // 0 of any dtype
  }

  __device__ __forceinline__ void unpack(const LaneArguments<Element>& a, int c) {
    unpack_lane<Element>(bias_bits_, bias);
    float values[kEach * Taps];
#pragma unroll
    for (int k = 0; k < Taps; ++k) unpack_lane<Element>(tap_bits_[k], values + k * kEach);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int k = 0; k < Taps; ++k) taps[i][k] = values[i * Taps + k];
    }
    if constexpr (AnyWeight) {
      if (a.weight == nullptr) load_any_taps(a.tensors.weight, c);
      if (a.bias == nullptr && a.tensors.bias.exists()) load_any_bias(a.tensors.bias, c);
    }
  }

 private:
  __device__ __forceinline__ void load_any_taps(const Operand<2>& weight, int c) {
    with_element_type(weight.dtype, [&](auto* tag) {
      const auto* const first = static_cast<decltype(tag)>(weight.data) + c * weight.strides[0];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int k = 0; k < Taps; ++k) {
          taps[i][k] = convert<float>(first[i * weight.strides[0] + k * weight.strides[1]]);
        }
      }
    });
  }
  __device__ __forceinline__ void load_any_bias(const Operand<1>& tensor, int c) {
    with_element_type(tensor.dtype, [&](auto* tag) {
      const auto* const first = static_cast<decltype(tag)>(tensor.data) + c * tensor.strides[0];
#pragma unroll
      for (int i = 0; i < kEach; ++i) bias[i] = convert<float>(first[i * tensor.strides[0]]);
    });
  }

  std::uint32_t tap_bits_[Taps], bias_bits_;
};

// A lane of each of a chain's tensors, in flight before the chain runs. They have x's dtype and layout.
template <class Element>
struct LaneOperands {
  std::uint32_t bits[kLightStages];

  __device__ __forceinline__ void load(const LightChain<float>& chain, long long n, int c, long long t) {
#pragma unroll
    for (int s = 0; s < kLightStages; ++s) {
      const Operand<3>& operand = chain.stages[s].operand;
      if (!operand.exists()) continue;
      bits[s] = load_lane(operand.as<const Element>() + n * operand.strides[0] + c + t * operand.strides[2]);
    }
  }
  __device__ __forceinline__ void run(const LightChain<float>& chain, float (&values)[kLaneChannels<Element>]) const {
#pragma unroll
    for (int s = 0; s < kLightStages; ++s) {
      if (s >= chain.count) return;
      run_light_stage<Element>(chain.stages[s], values, [&](float* others) { unpack_lane<Element>(bits[s], others); });
    }
  }
};

}  // namespace sluice
