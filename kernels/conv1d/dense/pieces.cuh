// Pieces of a tile's results: 16 positions by 32 channels of a warp, which pass through shared memory and are stored as
// vectors of eight neighbours in the result's memory.
#pragma once

#include "kernels/common/edges.cuh"
#include "kernels/common/store_run.cuh"
#include "kernels/conv1d/dense/arguments.cuh"

namespace sluice {

// Read where it stands: nothing that is made of it is kept in registers from tile to tile.
__device__ __forceinline__ int own_lane() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A warp's results pass through shared memory, pieces of 16 positions by 32 channels, and come back as two vectors of
// eight neighbours in the result's memory for each thread:
//
//   neighbours    a row                        a lane
//   channels      32 channels of a position    vector lane % 4 of positions lane / 4 and 8 on
//   positions     16 positions of a channel    vector lane % 2 of channels lane / 2 and 16 on
template <bool ByPositions>
struct DensePiece {
  static constexpr int kPitch = ByPositions ? kDensePositionPitch : kDenseChannelPitch;
  static constexpr int kVectors = ByPositions ? 2 : 4;  // of a row
  static constexpr int kStep = 32 / kVectors;           // rows from a thread's first vector to its second

  int lane, row = lane / kVectors, vector = lane % kVectors;

  __device__ __forceinline__ int channel(int slice) const { return ByPositions ? row + slice * kStep : vector * 8; }
  __device__ __forceinline__ int position(int slice) const { return ByPositions ? vector * 8 : row + slice * kStep; }

  // Rows are not quite as they are read: channels' fours change places in odd rows, positions' fours in odd channels'
  // rows and their eights in every other four channels' ones.
  __device__ __forceinline__ static int twist(int row) {
    return ByPositions ? (row & 1) * 4 + (row & 4) * 2 : (row & 1) * 4;
  }

  // From where the sums are in the warp's registers.
  __device__ __forceinline__ void stage(const float* sums, float* staged) const {
    const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (ByPositions) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          float* const own = staged + (column + b) * kPitch + ((row + i * 8) ^ twist(column + b));
#pragma unroll
          for (int j = 0; j < kDensePiece / 8; ++j) own[8 * j * kPitch] = sums[j * 4 + i * 2 + b];
        }
      } else {
        float* const own = staged + (row + i * 8) * kPitch + (column ^ twist(row));
#pragma unroll
        for (int j = 0; j < kDensePiece / 8; ++j) {
          *reinterpret_cast<float2*>(own + 8 * j) = make_float2(sums[j * 4 + i * 2], sums[j * 4 + i * 2 + 1]);
        }
      }
    }
  }

  // To where the chain takes them, with the bias.
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

// A row of a piece as half types in shared memory.
template <bool ByPositions>
inline constexpr int kPieceRowBytes = ByPositions ? 32 : 64;

// Where a thread's two vectors of a piece lie, and which of them are part of the result.
template <bool ByPositions, class Arguments>
struct PieceVectors {
  static constexpr int kDimension = ByPositions ? 2 : 1;  // along which a vector lies
  const Arguments& a;
  DenseTile tile;  // the piece's first position and channel
  DensePiece<ByPositions> piece;

  __device__ __forceinline__ int position(int slice) const { return tile.position + piece.position(slice); }
  __device__ __forceinline__ int channel(int slice) const { return tile.channel + piece.channel(slice); }
  __device__ __forceinline__ long long offset(const long long* strides, int slice) const {
    return tile.batch * strides[0] + channel(slice) * strides[1] + position(slice) * strides[2];
  }
  // Elements from the vector's first to the result's end; 0 or less where there are none.
  __device__ __forceinline__ int left(int slice) const {
    const int positions = a.output_length - position(slice), channels = a.channels_end(tile.group) - channel(slice);
    return ByPositions ? (channels > 0 ? positions : 0) : (positions > 0 ? channels : 0);
  }
  // Of what `left` says. Not max(0, min(8, left)): where that is compared with 8, ptxas of CUDA 13.0 compares `left`.
  __device__ __forceinline__ Place place(const long long* strides, int slice, int last) const {
    return {.offset = offset(strides, slice), .stride = strides[kDimension], .first = 0, .last = last};
  }
};

// Where a thread's two vectors of a piece go, and how many elements of each one's run of neighbours are part of the
// result, from the piece's first on.
template <class Element, bool ByPositions>
struct StoredVectors {
  int vector;  // of the runs
  Element* to[2];
  int count[2];

  // Whole words that begin at 16 bytes: each is part of the result or none of it.
  __device__ __forceinline__ void store_aligned(const Word (&words)[2]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) store_word_if((vector + 1) * kWordElements<Element> <= count[s], to[s], words[s]);
  }
  __device__ __forceinline__ void store(bool aligned, const Word (&words)[2]) const {
    if (aligned) return store_aligned(words);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      store_run<DensePiece<ByPositions>::kVectors>(to[s] - vector * kWordElements<Element>, count[s], words[s], vector);
    }
  }
};

}  // namespace sluice
