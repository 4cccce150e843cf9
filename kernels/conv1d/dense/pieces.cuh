// Pieces of a tile's results: 16 positions by 32 channels of a warp, which pass through shared memory and are stored as
// vectors of eight neighbours in the result's memory.
#pragma once

#include "kernels/common/edges.cuh"
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

// Where a thread's two vectors of a piece lie, and which of them are part of the result.
template <bool ByPositions>
struct PieceVectors {
  static constexpr int kDimension = ByPositions ? 2 : 1;  // along which a vector lies
  const DenseArguments& a;
  DenseTile tile;  // the piece's first position and channel
  DensePiece<ByPositions> piece;

  __device__ __forceinline__ int position(int slice) const { return tile.position + piece.position(slice); }
  __device__ __forceinline__ int channel(int slice) const { return tile.channel + piece.channel(slice); }
  __device__ __forceinline__ long long offset(const long long* strides, int slice) const {
    return tile.batch * strides[0] + channel(slice) * strides[1] + position(slice) * strides[2];
  }
  // Elements from the vector's first to the result's end; 0 or less where there are none.
  __device__ __forceinline__ int left(int slice) const {
    const int positions = a.output_length - position(slice), channels = a.channels - channel(slice);
    return ByPositions ? (channels > 0 ? positions : 0) : (positions > 0 ? channels : 0);
  }
  // Of what `left` says. Not max(0, min(8, left)): where that is compared with 8, ptxas of CUDA 13.0 compares `left`.
  __device__ __forceinline__ Place place(const long long* strides, int slice, int last) const {
    return {.offset = offset(strides, slice), .stride = strides[kDimension], .first = 0, .last = last};
  }
};

// A vector of half types to where elements begin, but not words.
template <class Element>
__device__ __forceinline__ void store_shifted_word(Element* to, const Word& word) {
  const bool odd = reinterpret_cast<std::uintptr_t>(to) % 4 != 0;
  auto* const bytes = reinterpret_cast<char*>(to);
  if (!odd) {
#pragma unroll
    for (int i = 0; i < 4; ++i) *reinterpret_cast<std::uint32_t*>(bytes + 4 * i) = word.lanes[i];
    return;
  }
  *reinterpret_cast<std::uint16_t*>(bytes) = static_cast<std::uint16_t>(word.lanes[0]);
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    *reinterpret_cast<std::uint32_t*>(bytes + 2 + 4 * i) = __funnelshift_r(word.lanes[i], word.lanes[i + 1], 16);
  }
  *reinterpret_cast<std::uint16_t*>(bytes + 14) = static_cast<std::uint16_t>(word.lanes[3] >> 16);
}

// The same for `Lanes` neighbouring lanes, of which all hold a part of one run of memory, each the next: in whole words
// but for the run's ends, which are stored in pieces of 2, 4 and 8 bytes.
template <int Lanes, class Element>
__device__ __forceinline__ void store_shifted_run(Element* to, const Word& word, int lane) {
  Word next;
#pragma unroll
  for (int i = 0; i < 4; ++i) next.lanes[i] = __shfl_down_sync(0xffffffff, word.lanes[i], 1);
  const int before = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % kWordBytes), after = kWordBytes - before;
  if (before == 0) return store_global_word(to, word);
  char* bytes = reinterpret_cast<char*>(to);
  if (lane < Lanes - 1) store_global_word(bytes + after, shift_words(word, next, after));
  if (lane == 0) {
    if (before & 2) *reinterpret_cast<std::uint16_t*>(bytes) = static_cast<std::uint16_t>(word.lanes[0]);
    Word rest = shift_words(word, {}, before & 2);
    bytes += before & 2;
    const int half = (before + 2) / 4 * 4;  // where the pieces of 4 bytes begin
    if (half & 4) *reinterpret_cast<std::uint32_t*>(bytes) = rest.lanes[0];
    rest = shift_words(rest, {}, half & 4);
    bytes += half & 4;
    if (before <= 8) *reinterpret_cast<uint2*>(bytes) = make_uint2(rest.lanes[0], rest.lanes[1]);
  }
  if (lane == Lanes - 1) {
    Word rest = shift_words(word, {}, after);
    bytes += after;
    if (before & 8) *reinterpret_cast<uint2*>(bytes) = make_uint2(rest.lanes[0], rest.lanes[1]);
    rest = shift_words(rest, {}, before & 8);
    bytes += before & 8;
    if (before & 4) *reinterpret_cast<std::uint32_t*>(bytes) = rest.lanes[0];
    rest = shift_words(rest, {}, before & 4);
    bytes += before & 4;
    if (before & 2) *reinterpret_cast<std::uint16_t*>(bytes) = static_cast<std::uint16_t>(rest.lanes[0]);
  }
}

// Where a thread's two vectors of the pieces go, all of which are part of the result or none.
template <class Element, bool ByPositions>
struct WholeVectors {
  Element* to[2];
  bool exists[2];

  __device__ __forceinline__ void store_aligned(const Word (&words)[2]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) store_word_if(exists[s], to[s], words[s]);
  }
  __device__ __forceinline__ void store(const DenseArguments& a, int lane, const Word (&words)[2]) const {
    if (a.aligned_vectors) return store_aligned(words);
    constexpr int kLanes = DensePiece<ByPositions>::kVectors;
    const bool all_exist = __all_sync(0xffffffff, exists[0] && exists[1]);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      if (all_exist) {
        store_shifted_run<kLanes>(to[s], words[s], lane % kLanes);
      } else if (exists[s]) {
        store_shifted_word(to[s], words[s]);
      }
    }
  }
};

}  // namespace sluice
