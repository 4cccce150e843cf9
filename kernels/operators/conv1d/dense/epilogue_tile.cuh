// Epilogue tiles: 16 positions by 32 channels of a warp's results, which pass through shared memory and are stored as
// vectors of eight contiguous elements.
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/store_span.cuh"

namespace sluice {

// Read at each use, so that the compiler keeps nothing derived from it in registers from tile to tile.
__device__ __forceinline__ int own_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Each thread gets two vectors of eight contiguous elements of the result:
//
//   contiguous    a row                        a lane
//   channels      32 channels of a position    vector lane % 4 of positions lane / 4 and lane / 4 + 8
//   positions     16 positions of a channel    vector lane % 2 of channels lane / 2 and lane / 2 + 16
template <bool ByPositions>
struct EpilogueTile {
  static constexpr int kPitch = ByPositions ? kDensePositionPitch : kDenseChannelPitch;
  static constexpr int kVectors = ByPositions ? 2 : 4;  // vectors of a row
  static constexpr int kStep = 32 / kVectors;           // rows from a thread's first vector to its second

  int lane, row = lane / kVectors, vector = lane % kVectors;

  __device__ __forceinline__ int channel(int slice) const { return ByPositions ? row + slice * kStep : vector * 8; }
  __device__ __forceinline__ int position(int slice) const { return ByPositions ? vector * 8 : row + slice * kStep; }

  // Against bank conflicts: fours of channels are swapped in odd rows; fours of positions in odd channels' rows, and
  // eights in the rows of every other four channels.
  __device__ __forceinline__ static int twist(int row) {
    return ByPositions ? (row & 1) * 4 + (row & 4) * 2 : (row & 1) * 4;
  }

  // Stores the sums from the registers that the products leave them in.
  __device__ __forceinline__ void to_shared(const float* sums, float* staged) const {
    const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (ByPositions) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float* const own = staged + (column + b) * kPitch + ((row + i * 8) ^ twist(column + b));
#pragma unroll
          for (int j = 0; j < kEpilogueColumns / 8; ++j) own[8 * j * kPitch] = sums[j * 4 + i * 2 + b];
        }
      } else {
        float* const own = staged + (row + i * 8) * kPitch + (column ^ twist(row));
#pragma unroll
        for (int j = 0; j < kEpilogueColumns / 8; ++j) {
          *reinterpret_cast<float2*>(own + 8 * j) = make_float2(sums[j * 4 + i * 2], sums[j * 4 + i * 2 + 1]);
        }
      }
    }
  }

  // Loads them as the chain's vectors and adds the bias.
  __device__ __forceinline__ void load(const float* staged, const float* bias, float* values) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float* const own = staged + (row + s * kStep) * kPitch;
      const float row_bias = ByPositions ? bias[row + s * kStep] : 0.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 four = *reinterpret_cast<const float4*>(own + ((vector * 8 + h * 4) ^ twist(row)));
        float4 added = make_float4(row_bias, row_bias, row_bias, row_bias);
        if constexpr (!ByPositions) added = *reinterpret_cast<const float4*>(bias + vector * 8 + h * 4);
        float* const to = values + s * 8 + h * 4;
        to[0] = four.x + added.x, to[1] = four.y + added.y, to[2] = four.z + added.z, to[3] = four.w + added.w;
      }
    }
  }
};

// A row of an epilogue tile as half types in shared memory.
template <bool ByPositions>
inline constexpr int kEpilogueRowBytes = ByPositions ? 32 : 64;

// A thread's two vectors of an epilogue tile: their offsets, and which elements exist in the result.
template <bool ByPositions, class Arguments>
struct EpilogueVectors {
  static constexpr int kDimension = ByPositions ? 2 : 1;  // dimension of a vector's elements
  const Arguments& a;
  DenseTile tile;  // the epilogue tile's first position and channel
  EpilogueTile<ByPositions> epilogue_tile;

  __device__ __forceinline__ int position(int slice) const { return tile.position + epilogue_tile.position(slice); }
  __device__ __forceinline__ int channel(int slice) const { return tile.channel + epilogue_tile.channel(slice); }
  __device__ __forceinline__ long long offset(const long long* strides, int slice) const {
    return tile.batch * strides[0] + channel(slice) * strides[1] + position(slice) * strides[2];
  }
  // Elements from the vector's first to the result's end; 0 or less where there are none.
  __device__ __forceinline__ int left(int slice) const {
    const int positions = a.output_length - position(slice),
              channels = a.channels_end(tile.group_or_split) - channel(slice);
    return ByPositions ? (channels > 0 ? positions : 0) : (positions > 0 ? channels : 0);
  }
  // `last` is not max(0, min(8, left)): where that is compared with 8, ptxas of CUDA 13.0 compares `left`.
  __device__ __forceinline__ Place place(const long long* strides, int slice, int last) const {
    return {.offset = offset(strides, slice), .stride = strides[kDimension], .first = 0, .last = last};
  }
};

// Where a thread's two vectors of an epilogue tile are stored, and how many elements of each vector's row exist in the
// result, from the tile's first on.
template <class Element, bool ByPositions>
struct StoredVectors {
  static constexpr int kWords = kEpilogueVector / kWordElements<Element>;  // words of a vector

  int vector;  // index in the row
  Element* to[2];
  int count[2];

  // Whole aligned words: each is in the result entirely or not at all.
  __device__ __forceinline__ void store_aligned(const Word (&words)[2 * kWords]) const {
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) {
      const int s = i / kWords, word = i % kWords;
      store_word_if((vector * kWords + word + 1) * kWordElements<Element> <= count[s],
                    to[s] + word * kWordElements<Element>, words[i]);
    }
  }
  // Vectors of half types may be unaligned.
  __device__ __forceinline__ void store(bool aligned, const Word (&words)[2]) const {
    if (aligned) return store_aligned(words);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      store_span<EpilogueTile<ByPositions>::kVectors>(to[s] - vector * kWordElements<Element>, count[s], words[s],
                                                      vector);
    }
  }
};

// A thread's two vectors, rounded to the result's dtype.
template <class Element>
struct VectorWords {
  static constexpr int kCount = 2 * kEpilogueVector / kWordElements<Element>;
  Word words[kCount];

  __device__ __forceinline__ explicit VectorWords(const float (&values)[2 * kEpilogueVector]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = pack<Element>(values + i * kWordElements<Element>);
  }
};

}  // namespace sluice
