// The definitions for a linked chain's source. NVRTC reads this from memory, so it includes no CUDA header.
//
//   using t0 = ChainOperand<DType::bfloat16, float, 8, 2, 0>;
//   t0::load(lanes, data[0], places);                                       in flight, before any arithmetic
//   evaluate_all<16>(Evaluate<Op::add>{}, v, [&](int i) {
//     return Parameters<float>{{t0::get(lanes, i), s[1].number[1], s[1].number[2]}};
//   });
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/stages/evaluate.cuh"
#include "kernels/shared/stages/place.h"

#define SLUICE_EACH(count) _Pragma("unroll") for (int i = 0; i < count; ++i)

namespace sluice {

// A stage in the kernel's arguments (ChainArguments::Header).
template <class T>
struct LinkedHeader {
  unsigned control;
  T number[kMaxParameters];
};

// --- elements as bits --------------------------------------------------------------------------------------------
template <DType dtype>
__device__ __forceinline__ float decode16(unsigned bits) {
  if constexpr (dtype == DType::bfloat16) {
    return __uint_as_float(bits << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
    return value;
  }
}

// A value rounded to a half type, as bits.
template <DType dtype>
__device__ __forceinline__ unsigned short encode16(float value) {
  unsigned short bits;
  if constexpr (dtype == DType::bfloat16) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  return bits;
}

// A value rounded to `dtype`. A double reaches a half type through float, as in torch.
template <DType dtype, class T>
__device__ __forceinline__ T rounded(T value) {
  if constexpr (dtype == DType::float64) {
    return value;
  } else if constexpr (dtype == DType::float32) {
    return static_cast<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(decode16<dtype>(encode16<dtype>(static_cast<float>(value))));
  }
}

// --- operands ----------------------------------------------------------------------------------------------------
// A tensor operand's elements for Slices vectors of Width, kept as in memory until they are used: operand `Index` has
// its share of the kernel's `lanes` (LinkedChain::Loads).
template <DType dtype, class T, int Width, int Slices, int Index>
struct ChainOperand {
  static constexpr int kSize = static_cast<int>(size_of(dtype));
  static constexpr int kBytes = Width * kSize;  // bytes of a vector: 4 to 64
  static constexpr int kLanes = kBytes / 4;
  static constexpr int kAlignment = kBytes < 16 ? kBytes : 16;

  __device__ __forceinline__ static void load(unsigned* lanes, const void* data, const Place* places) {
#pragma unroll
    for (int g = 0; g < Slices; ++g) {
      load_slice(static_cast<const char*>(data), places[Index * Slices + g], lanes + (Index * Slices + g) * Width * 2);
    }
  }

  __device__ __forceinline__ static T get(const unsigned* lanes, int i) {
    const unsigned* const own = lanes + (Index * Slices + i / Width) * Width * 2;
    const int e = i % Width;
    if constexpr (kSize == 2) {
      return static_cast<T>(decode16<dtype>(e % 2 == 0 ? own[e / 2] & 0xffffu : own[e / 2] >> 16));
    } else if constexpr (kSize == 4) {
      return static_cast<T>(__uint_as_float(own[e]));
    } else {
      return static_cast<T>(__hiloint2double(static_cast<int>(own[2 * e + 1]), static_cast<int>(own[2 * e])));
    }
  }

  // Stores the values of all slices, rounded, to the operand.
  __device__ __forceinline__ static void store(const void* data, const Place* places, const T* values) {
#pragma unroll
    for (int g = 0; g < Slices; ++g) {
      const Place& place = places[Index * Slices + g];
      char* const to = const_cast<char*>(static_cast<const char*>(data)) + place.offset * kSize;
      unsigned lanes[kLanes];
#pragma unroll
      for (int i = 0; i < Width; ++i) put(lanes, i, values[g * Width + i]);
      if (place.stride == 1 && place.first == 0 && place.last == Width && address(to) % kAlignment == 0) {
#pragma unroll
        for (int b = 0; b < kBytes; b += kAlignment) store_partial<kAlignment>(to + b, lanes + b / 4);
        continue;
      }
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        if (place.first <= i && i < place.last) store_element(to + i * place.stride * kSize, lanes, i);
      }
    }
  }

 private:
  __device__ __forceinline__ static void put(unsigned* lanes, int i, T value) {
    if constexpr (kSize == 2) {
      const unsigned bits = encode16<dtype>(static_cast<float>(value));
      lanes[i / 2] = i % 2 == 0 ? bits : lanes[i / 2] | bits << 16;
    } else if constexpr (kSize == 4) {
      lanes[i] = __float_as_uint(static_cast<float>(value));
    } else {
      const double wide = static_cast<double>(value);
      lanes[2 * i] = static_cast<unsigned>(__double2loint(wide));
      lanes[2 * i + 1] = static_cast<unsigned>(__double2hiint(wide));
    }
  }
  __device__ __forceinline__ static void store_element(char* to, const unsigned* lanes, int i) {
    if constexpr (kSize == 2) {
      *reinterpret_cast<unsigned short*>(to) =
          static_cast<unsigned short>(i % 2 == 0 ? lanes[i / 2] : lanes[i / 2] >> 16);
    } else if constexpr (kSize == 4) {
      *reinterpret_cast<unsigned*>(to) = lanes[i];
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(lanes[2 * i], lanes[2 * i + 1]);
    }
  }
  template <int Bytes>
  __device__ __forceinline__ static void store_partial(char* to, const unsigned* from) {
    if constexpr (Bytes == 16) {
      // A generic store would be split (store_global_word).
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(__cvta_generic_to_global(to)), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                   : "memory");
    } else if constexpr (Bytes == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(from[0], from[1]);
    } else {
      *reinterpret_cast<unsigned*>(to) = from[0];
    }
  }

  __device__ __forceinline__ static void load_slice(const char* data, const Place& place, unsigned* to) {
    const char* const from = data + place.offset * kSize;
    const bool whole = place.first == 0 && place.last == Width;
    if (place.stride == 1 &&
        (whole || (place.first < place.last && place.offset >= 0 && place.offset + Width <= place.extent))) {
      if (address(from) % kAlignment == 0) return load_vector(from, to);
      const char* const start = from - address(from) % kAlignment;
      if (start >= data && start + kBytes + kAlignment <= data + place.extent * kSize) {
        unsigned both[kLanes + kAlignment / 4];
        load_vector(start, both);
        load_partial<kAlignment>(start + kBytes, both + kLanes);
        return shift(both, static_cast<int>(from - start), to);
      }
    }
    load_elements(data, place, to);
  }

  __device__ __forceinline__ static unsigned long long address(const char* at) {
    return reinterpret_cast<unsigned long long>(at);
  }

  template <int Bytes>
  __device__ __forceinline__ static void load_partial(const char* from, unsigned* to) {
    if constexpr (Bytes == 16) {
      const uint4 bits = *reinterpret_cast<const uint4*>(from);
      to[0] = bits.x, to[1] = bits.y, to[2] = bits.z, to[3] = bits.w;
    } else if constexpr (Bytes == 8) {
      const uint2 bits = *reinterpret_cast<const uint2*>(from);
      to[0] = bits.x, to[1] = bits.y;
    } else {
      to[0] = *reinterpret_cast<const unsigned*>(from);
    }
  }
  __device__ __forceinline__ static void load_vector(const char* from, unsigned* to) {
#pragma unroll
    for (int b = 0; b < kBytes; b += kAlignment) load_partial<kAlignment>(from + b, to + b / 4);
  }

  // The kBytes that start `bytes` into `both`.
  __device__ __forceinline__ static void shift(unsigned* both, int bytes, unsigned* to) {
    constexpr int kBoth = kLanes + kAlignment / 4;
    if (kAlignment > 8 && (bytes & 8)) {
#pragma unroll
      for (int i = 0; i + 2 < kBoth; ++i) both[i] = both[i + 2];
    }
    if (kAlignment > 4 && (bytes & 4)) {
#pragma unroll
      for (int i = 0; i + 1 < kBoth; ++i) both[i] = both[i + 1];
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) to[i] = __funnelshift_r(both[i], both[i + 1], (bytes & 3) * 8);
  }

  // One by one: edges, strides, a single value that is broadcast.
  __device__ __forceinline__ static void load_elements(const char* data, const Place& place, unsigned* to) {
    const char* const from = data + place.offset * kSize;
    const bool any = place.first < place.last;
    if (place.stride == 0) {
      unsigned low = 0, high = 0;
      if (any) load_element(from, low, high);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) to[i] = kSize == 2 ? low | low << 16 : kSize == 8 && i % 2 == 1 ? high : low;
      return;
    }
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      unsigned low = 0, high = 0;
      if (place.first <= i && i < place.last) load_element(from + i * place.stride * kSize, low, high);
      if constexpr (kSize == 2) {
        to[i / 2] = i % 2 == 0 ? low : to[i / 2] | low << 16;
      } else if constexpr (kSize == 4) {
        to[i] = low;
      } else {
        to[2 * i] = low, to[2 * i + 1] = high;
      }
    }
  }
  __device__ __forceinline__ static void load_element(const char* from, unsigned& low, unsigned& high) {
    if constexpr (kSize == 2) {
      low = *reinterpret_cast<const unsigned short*>(from);
    } else {
      low = *reinterpret_cast<const unsigned*>(from);
      if constexpr (kSize == 8) high = *reinterpret_cast<const unsigned*>(from + 4);
    }
  }
};

}  // namespace sluice
