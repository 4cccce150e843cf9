// What becomes of a tile's sums: the bias, `post`, and the way to the result in whole vectors.
#pragma once

#include "kernels/conv1d/dense/multiply.cuh"
#include "kernels/conv1d/dense/pieces.cuh"
#include "kernels/conv1d/dense/ragged_rows.cuh"
#include "kernels/mma/matrices.cuh"

namespace sluice {

// The chain on the sums where they are, with the bias, and then, rounded, to a piece's rows of half types in shared
// memory, as matrices of 8 x 8: rows of 32 channels, or of positions. `place_of(call)`: where this lane has a row of
// the matrices of two blocks of eight channels and two of eight positions.
template <class Post, class Element, bool ByPositions, class PlaceOf>
__device__ __forceinline__ void round_sums(const DenseArguments& a, int lane, float (&values)[16], const float* bias,
                                           const PlaceOf& place_of) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 added = *reinterpret_cast<const float2*>(bias + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[j * 4 + i] += i % 2 == 0 ? added.x : added.y;
  }
  // No tensor is asked for.
  run_chain<Post, 8, 2>(a.post, [](const long long*, int) { return Place{}; }, values);
  __syncwarp();
#pragma unroll
  for (int call = 0; call < 2; ++call) {
    std::uint32_t matrices[4];
#pragma unroll
    for (int m = 0; m < 4; ++m)
      matrices[m] = Pair<Element>::store(values[call * 8 + m * 2], values[call * 8 + m * 2 + 1]);
    store_matrices<ByPositions>(place_of(call), matrices);
  }
  __syncwarp();
}

// To the rows of a warp's own piece, whose 16 bytes are swizzled.
template <class Post, class Element, bool ByPositions>
__device__ __forceinline__ void round_sums(const DenseArguments& a, int lane, float (&values)[16], std::uint32_t to,
                                           const float* bias) {
  constexpr int kRowBytes = kPieceRowBytes<ByPositions>;
  round_sums<Post, Element, ByPositions>(a, lane, values, bias, [&](int call) {
    const int positions = lane / 8 % 2, channels = call * 2 + lane / 16;
    const int row = lane % 8 + 8 * (ByPositions ? channels : positions);
    const int offset = row * kRowBytes + (ByPositions ? positions : channels) * 16;
    return to + swizzled(static_cast<std::uint32_t>(offset), kRowBytes);
  });
}

// A piece whose `post` has no tensors: the chain runs on the sums where they are, and half types pass through shared
// memory. `aligned`: as StoredVectors has it.
template <class Post, class Element, bool ByPositions>
__device__ __forceinline__ void finish_sums(const DenseArguments& a, const DensePiece<ByPositions>& piece, bool aligned,
                                            const StoredVectors<Element, ByPositions>& vectors, float (&values)[16],
                                            float* staged, const float* bias) {
  constexpr int kRowBytes = kPieceRowBytes<ByPositions>;
  const std::uint32_t to = shared_address(staged);
  round_sums<Post, Element, ByPositions>(a, piece.lane, values, to, bias);
  Word words[2];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const int row = piece.row + s * DensePiece<ByPositions>::kStep;
    const auto offset = static_cast<std::uint32_t>(row * kRowBytes + piece.vector * 16);
    words[s] = load_shared_word(to + swizzled(offset, kRowBytes));
  }
  vectors.store(aligned, words);
}

// `use(sums of piece p)` of a warp's part of a tile, where p is known only when the kernel runs: registers have no
// index.
template <int Blocks, int Channels, class Use>
__device__ __forceinline__ void with_piece_sums(const DenseSums<Blocks, Channels>& sums, int p, const Use& use) {
  constexpr int kColumns = Channels / kDensePiece;
#pragma unroll
  for (int i = 0; i < Blocks * kColumns; ++i) {
    if (i == p) use(sums[i / kColumns] + i % kColumns * (kDensePiece / 2));
  }
}

// The pieces of a warp's part of a tile, its 16 positions of each block of 64.
template <class Post, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
struct WarpPieces {
  static constexpr int kColumns = Channels / kDensePiece, kCount = Blocks * kColumns;
  const Arguments& a;
  const DenseSums<Blocks, Channels>& sums;
  DenseTile tile;
  float* staged;
  const float* bias;
  DensePiece<ByPositions> piece;

  __device__ __forceinline__ PieceVectors<ByPositions, Arguments> vectors(int p) const {
    return {a,
            {tile.batch, tile.position + p / kColumns * 64, tile.channel + p % kColumns * kDensePiece, tile.group},
            piece};
  }
  __device__ __forceinline__ const float* bias_of(int p) const { return bias + p % kColumns * kDensePiece; }
  __device__ __forceinline__ bool exists(
      const PieceVectors<ByPositions, Arguments>& piece) const {  // for all of the warp
    return piece.tile.position < a.output_length && piece.tile.channel < a.channels_end(tile.group);
  }
  template <class Use>
  __device__ __forceinline__ void with_sums(int p, const Use& use) const {
    with_piece_sums<Blocks, Channels>(sums, p, use);
  }

  __device__ __forceinline__ Element* first_vector(int slice) const {  // of the first piece
    return a.output.template as<Element>() + vectors(0).offset(a.output.strides, slice);
  }
  // Of piece p; its vectors lie as far behind those of the first one, both of them.
  __device__ __forceinline__ StoredVectors<Element, ByPositions> stored(int p, Element* const (&first)[2]) const {
    const int positions = p / kColumns * 64, channels = p % kColumns * kDensePiece;
    const long long step =
        ByPositions ? positions + channels * a.output.strides[1] : positions * a.output.strides[2] + channels;
    const int positions_left = a.output_length - tile.position - positions;
    const int channels_left = a.channels_end(tile.group) - tile.channel - channels;
    StoredVectors<Element, ByPositions> own{piece.vector, {}, {}};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      own.to[s] = first[s] + step;
      own.count[s] = ByPositions ? (piece.channel(s) < channels_left ? positions_left : 0)
                                 : (piece.position(s) < positions_left ? channels_left : 0);
    }
    return own;
  }
  __device__ __forceinline__ void finish_piece(int p, bool aligned, const float* own,
                                               Element* const (&first)[2]) const {
    float values[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) values[i] = own[i];
    finish_sums<Post>(a, piece, aligned, stored(p, first), values, staged, bias_of(p));
  }
  // A chain without tensors. What is done in more than a few instructions stands once, or it would not fit into the
  // instruction cache.
  __device__ __forceinline__ void finish_without_tensors(bool aligned) const {
    Element* const first[2] = {first_vector(0), first_vector(1)};
    if (aligned && !Post{a.post}.is_long()) {
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
        finish_piece(p, true, sums[p / kColumns] + p % kColumns * (kDensePiece / 2), first);
      }
      return;
    }
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      float values[16];
      with_sums(p, [&](const float* own) {
#pragma unroll
        for (int i = 0; i < 16; ++i) values[i] = own[i];
      });
      finish_piece(p, aligned, values, first);
    }
  }

  // Rows that begin anywhere, of positions: a run of a warp's 16 would be two words that it has to share with others,
  // and a store of 16 rows' elements takes 16 cycles. The four warps of a warpgroup put their pieces together.
  __device__ __forceinline__ void finish_rows(int warpgroup, int warp, std::uint32_t rows) const {
    const auto await_others = [warpgroup] { asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory"); };
    await_others();  // the tile before is stored
    Element* const result = a.output.template as<Element>() + tile.batch * a.output.strides[0] +
                            tile.channel * a.output.strides[1] + (tile.position - warp * 16);
    const RaggedRows<Element> ragged(warp, piece.lane, result, a.output.strides[1]);
    static_assert(2 * RaggedRows<Element>::kBytes <= 4 * kDenseStagedFloats * 4);
    std::uint32_t piece_rows = rows;
    const auto finish = [&](int p, const float* own) {
      const int positions = p / kColumns * 64, channels = p % kColumns * kDensePiece;
      const int positions_left = a.output_length - (tile.position - warp * 16) - positions;
      const int channels_left = a.channels_end(tile.group) - tile.channel - channels;
      if (positions_left <= 0 || channels_left <= 0) return;  // for all four
      float values[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) values[i] = own[i];
      round_sums<Post, Element, true>(a, piece.lane, values, bias_of(p),
                                      [&](int call) { return piece_rows + ragged.matrix(call); });
      await_others();
      ragged.store(piece_rows, channels * a.output.strides[1] + positions, channels_left, positions_left);
      piece_rows = 2 * rows + RaggedRows<Element>::kBytes - piece_rows;  // the others may be reading
    };
    // A row's pieces one after another: two of them share the 32 bytes that they meet in, which reach device memory
    // twice where the second is late.
    const auto in_rows = [](int i) { return i % Blocks * kColumns + i / Blocks; };
    if (!Post{a.post}.is_long()) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int p = in_rows(i);
        finish(p, sums[p / kColumns] + p % kColumns * (kDensePiece / 2));
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      const int p = in_rows(i);
      float values[16];
      with_sums(p, [&](const float* own) {
#pragma unroll
        for (int j = 0; j < 16; ++j) values[j] = own[j];
      });
      finish(p, values);
    }
  }

  // By way of float32 in shared memory, to vectors as the chain's tensors have them.
  __device__ __forceinline__ void stage(int p, float (&values)[16]) const {
    __syncwarp();
    with_sums(p, [&](const float* own) { piece.stage(own, staged); });
    __syncwarp();
    piece.load(staged, bias_of(p), values);
  }

  // Whole vectors, a chain with tensors, which are loaded a piece ahead.
  __device__ __forceinline__ void finish_with_tensors(bool aligned) const {
    const Post chain{a.post};
    const auto load = [&](int p) {
      const PieceVectors<ByPositions, Arguments> own = vectors(p);
      return load_operands<8, 2>(chain, a.post, [own](const long long* strides, int s) {
        return own.place(strides, s, own.left(s) > 0 ? 8 : 0);
      });
    };
    Element* const first[2] = {first_vector(0), first_vector(1)};
    auto loads = load(0);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const PieceVectors<ByPositions, Arguments> own = vectors(p);
      float values[16];
      stage(p, values);
      const auto next = load(p + 1 < kCount ? p + 1 : p);
      chain.template apply<8, 2>(values, loads);
      loads = next;
      stored(p, first).store(aligned, {pack<Element>(values), pack<Element>(values + 8)});
    }
  }

  // At the edges, and where vectors are no runs of memory.
  __device__ __forceinline__ void finish_elements() const {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const PieceVectors<ByPositions, Arguments> own = vectors(p);
      if (!exists(own)) continue;
      float values[16];
      stage(p, values);
      const auto place_of = [&](const long long* strides, int s) {
        return own.place(strides, s, min_of(8, own.left(s)));
      };
      finish_slices<Post, 8, 2>(a.post, a.output, dtype, place_of, values);
    }
  }
};

template <class Post, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
__device__ __forceinline__ void finish_tile(const Arguments& a, const DenseTile& tile, DenseShared& shared,
                                            int warpgroup, const DenseSums<Blocks, Channels>& sums) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const DenseTile own = {tile.batch, tile.position + first_position<Blocks>(a, warpgroup) + warp * 16, tile.channel,
                         tile.group};
  const WarpPieces<Post, Element, Blocks, Channels, ByPositions, Arguments> pieces{
      a, sums, own, shared.staged[warpgroup * 4 + warp], shared.bias[warpgroup], {own_lane()}};
  const int extent = ByPositions ? a.output_length : a.channels_end(tile.group);
  const int end = ByPositions ? own.position + (Blocks - 1) * 64 + 16 : own.channel + Channels;
  const bool whole_words = end <= extent || extent % kWordElements<Element> == 0;
  const bool has_tensors = Post{a.post}.has_operands();
  if constexpr (ByPositions) {
    if (a.whole_vectors && !a.aligned_vectors && !has_tensors) {
      return pieces.finish_rows(warpgroup, warp, shared_address(shared.staged[warpgroup * 4]));
    }
  }
  if (!a.whole_vectors || (has_tensors && !whole_words)) {
    pieces.finish_elements();
  } else if (has_tensors) {
    pieces.finish_with_tensors(a.aligned_vectors);
  } else {
    pieces.finish_without_tensors(a.aligned_vectors && whole_words);
  }
}

template <int Channels, class Arguments>
__device__ __forceinline__ void load_bias(const Arguments& a, const DenseTile& tile, DenseShared& shared,
                                          int warpgroup) {
  const int own = threadIdx.x % 128, channel = tile.channel + own;
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");  // the tile before is stored
  if (own < Channels) {
    const bool exists = a.bias.exists() && channel < a.channels_end(tile.group);
    shared.bias[warpgroup][own] =
        exists ? load_as<float>(a.bias.data, known_dtype(LinkedTensor::bias, a.bias.dtype), channel * a.bias.strides[0])
               : 0.0f;
  }
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");
}

}  // namespace sluice
