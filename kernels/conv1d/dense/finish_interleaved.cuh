// What becomes of a tile's sums where its rows are output channels of several phases (interleave.h): pieces of 16
// positions by 32 rows, as finish.cuh has them, that come back from shared memory as neighbours of the result's memory.
#pragma once

#include "kernels/conv1d/dense/finish.cuh"
#include "kernels/conv1d/dense/interleave.h"

namespace sluice {

// `channels` and `output_length` are the rows and positions of the sums; `post` has the result's.
struct InterleavedArguments : DenseArguments {
  Interleave interleave;
};

template <class Post, class Element, int Blocks, int Channels>
struct InterleavedPieces {
  static constexpr int kColumns = Channels / kDensePiece, kCount = Blocks * kColumns;
  using Staged = DensePiece</*ByPositions=*/false>;  // rows of shared memory are positions
  const InterleavedArguments& a;
  const DenseSums<Blocks, Channels>& sums;
  DenseTile tile;
  float* staged;
  const float* bias;
  int lane;

  __device__ __forceinline__ int position(int p) const { return tile.position + p / kColumns * 64; }
  __device__ __forceinline__ int row(int p) const { return tile.channel + p % kColumns * kDensePiece; }
  __device__ __forceinline__ bool exists(int p) const {  // for all of the warp
    return position(p) < a.output_length && row(p) < a.channels;
  }
  __device__ __forceinline__ PieceVector vector(int slice) const {
    return a.interleave.piece_vector(lane + slice * 32);
  }
  __device__ __forceinline__ ResultVector result(int p, int slice) const {
    const PieceVector own = vector(slice);
    return a.interleave.result_vector(position(p) + own.position, row(p) + own.row);
  }
  __device__ __forceinline__ Place place(const long long* strides, const ResultVector& own) const {
    return {.offset = tile.batch * strides[0] + own.channel * strides[1] + own.position * strides[2],
            .stride = a.interleave.by_positions ? strides[2] : strides[1],
            .first = own.first,
            .last = own.last};
  }

  // A vector of half types, where round_sums left them.
  __device__ __forceinline__ Word load_rounded(const PieceVector& own) const {
    constexpr int kRowBytes = kPieceRowBytes<false>;
    const auto place_of = [&](const PieceVector& at) {
      return swizzled(static_cast<std::uint32_t>(at.position * kRowBytes + at.row * 2), kRowBytes);
    };
    if (!a.interleave.has_short_runs()) return load_shared_word(shared_address(staged) + place_of(own));
    Word word;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t offset = place_of(a.interleave.element(own, 2 * i));
      word.lanes[i] = *reinterpret_cast<const std::uint32_t*>(reinterpret_cast<const char*>(staged) + offset);
    }
    return word;
  }

  // The vectors of sums, where Staged::stage left them, with the bias.
  __device__ __forceinline__ void load(int p, float (&values)[16]) const {
    const float* const own_bias = bias + p % kColumns * kDensePiece;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const PieceVector own = vector(s);
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const PieceVector at = a.interleave.element(own, i);
        const int column = at.row ^ Staged::twist(at.position);
        const float2 pair = *reinterpret_cast<const float2*>(staged + at.position * Staged::kPitch + column);
        const float2 added = *reinterpret_cast<const float2*>(own_bias + at.row);
        values[s * 8 + i] = pair.x + added.x, values[s * 8 + i + 1] = pair.y + added.y;
      }
    }
  }

  // The piece's vectors, where each is a run of memory. All of the warp.
  __device__ __forceinline__ void store(int p, const Word (&words)[2]) const {
    const int lanes = a.interleave.run_lanes();
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const ResultVector own = result(p, s);
      Element* const to = a.output.as<Element>() + place(a.output.strides, own).offset;
      const bool whole = own.first == 0 && own.last == kPieceElements;
      if (lanes > 1 && __all_sync(0xffffffff, whole)) {
        const int in_run = lane & (lanes - 1);
        store_whole_run(to - in_run * kPieceElements, words[s], in_run, lanes);
      } else if (whole && a.aligned_vectors && lanes == 1) {
        store_global_word(to, words[s]);
      } else {
        store_word_elements(to, words[s], own.first, own.last);
      }
    }
  }

  // Each of a warp's pieces that exists. What is done for one stands once, or it would not fit into the instruction
  // cache.
  template <class Finish>
  __device__ __forceinline__ void for_each_piece(const Finish& finish) const {
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      if (exists(p)) finish(p);
    }
  }

  __device__ __forceinline__ void finish_without_tensors() const {
    for_each_piece([&](int p) {
      float values[16];
      with_piece_sums<Blocks, Channels>(sums, p, [&](const float* own) {
#pragma unroll
        for (int i = 0; i < 16; ++i) values[i] = own[i];
      });
      round_sums<Post, Element, false>(a, lane, values, shared_address(staged), bias + p % kColumns * kDensePiece);
      store(p, {load_rounded(vector(0)), load_rounded(vector(1))});
    });
  }

  // A chain with tensors, or vectors that are no runs of memory: by way of float32 in shared memory.
  __device__ __forceinline__ void finish_any() const {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
    for_each_piece([&](int p) {
      float values[16];
      __syncwarp();
      with_piece_sums<Blocks, Channels>(sums, p, [&](const float* own) { Staged{lane}.stage(own, staged); });
      __syncwarp();
      load(p, values);
      const auto place_of = [&](const long long* strides, int s) { return place(strides, result(p, s)); };
      if (a.whole_vectors) {
        run_chain<Post, 8, 2>(a.post, place_of, values);
        store(p, {pack<Element>(values), pack<Element>(values + 8)});
      } else {
        finish_slices<Post, 8, 2>(a.post, a.output, dtype, place_of, values);
      }
    });
  }
};

template <class Post, class Element, int Blocks, int Channels, bool>
__device__ __forceinline__ void finish_tile(const InterleavedArguments& a, const DenseTile& tile, DenseShared& shared,
                                            int warpgroup, const DenseSums<Blocks, Channels>& sums) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const DenseTile own = {tile.batch, tile.position + first_position<Blocks>(a, warpgroup) + warp * 16, tile.channel};
  const InterleavedPieces<Post, Element, Blocks, Channels> pieces{
      a, sums, own, shared.staged[warpgroup * 4 + warp], shared.bias[warpgroup], own_lane()};
  if (a.whole_vectors && !Post{a.post}.has_operands()) {
    pieces.finish_without_tensors();
  } else {
    pieces.finish_any();
  }
}

template <int Channels>
__device__ __forceinline__ void load_bias(const InterleavedArguments& a, const DenseTile& tile, DenseShared& shared,
                                          int warpgroup) {
  const int own = threadIdx.x % 128;
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");  // the tile before is stored
  if (own < Channels) {
    const int channel = a.interleave.channel_of(tile.channel + own);
    const bool exists = a.bias.exists() && channel >= 0;
    shared.bias[warpgroup][own] =
        exists ? load_as<float>(a.bias.data, known_dtype(LinkedTensor::bias, a.bias.dtype), channel * a.bias.strides[0])
               : 0.0f;
  }
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");
}

}  // namespace sluice
