// What becomes of a tile's sums: the bias, `post`, and the way to the result in whole vectors.
#pragma once

#include "kernels/common/edges.cuh"
#include "kernels/conv1d/dense/multiply.cuh"
#include "kernels/mma/matrices.cuh"

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

// A piece of whole vectors, whose `post` has no tensors: the chain runs on the sums where they are, and half types pass
// through shared memory, as matrices of 8 x 8.
template <bool Aligned, class Post, class Element, bool ByPositions>
__device__ __forceinline__ void finish_sums(const DenseArguments& a, const DensePiece<ByPositions>& piece,
                                            const WholeVectors<Element, ByPositions>& vectors, float (&values)[16],
                                            float* staged, const float* bias) {
  constexpr int kRowBytes = ByPositions ? 32 : 64;
  const int lane = piece.lane;
  const std::uint32_t to = shared_address(staged);
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
    // Two blocks of eight channels, of two blocks of eight positions each.
    std::uint32_t matrices[4];
#pragma unroll
    for (int m = 0; m < 4; ++m)
      matrices[m] = Pair<Element>::store(values[call * 8 + m * 2], values[call * 8 + m * 2 + 1]);
    const int positions = lane / 8 % 2, channels = call * 2 + lane / 16;
    const int row = lane % 8 + 8 * (ByPositions ? channels : positions);
    const std::uint32_t offset =
        static_cast<std::uint32_t>(row * kRowBytes + (ByPositions ? positions : channels) * 16);
    store_matrices<ByPositions>(to + swizzled(offset, kRowBytes), matrices);
  }
  __syncwarp();
  Word words[2];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const int row = piece.row + s * DensePiece<ByPositions>::kStep;
    const auto offset = static_cast<std::uint32_t>(row * kRowBytes + piece.vector * 16);
    words[s] = load_shared_word(to + swizzled(offset, kRowBytes));
  }
  if constexpr (Aligned) {
    vectors.store_aligned(words);
  } else {
    vectors.store(a, lane, words);
  }
}

// The pieces of a warp's part of a tile, its 16 positions of each block of 64.
template <class Post, class Element, int Blocks, int Channels, bool ByPositions>
struct WarpPieces {
  static constexpr int kColumns = Channels / kDensePiece, kCount = Blocks * kColumns;
  const DenseArguments& a;
  const DenseSums<Blocks, Channels>& sums;
  DenseTile tile;
  float* staged;
  const float* bias;
  DensePiece<ByPositions> piece;

  __device__ __forceinline__ PieceVectors<ByPositions> vectors(int p) const {
    return {a, {tile.batch, tile.position + p / kColumns * 64, tile.channel + p % kColumns * kDensePiece}, piece};
  }
  __device__ __forceinline__ const float* bias_of(int p) const { return bias + p % kColumns * kDensePiece; }
  __device__ __forceinline__ bool exists(const PieceVectors<ByPositions>& piece) const {  // for all of the warp
    return piece.tile.position < a.output_length && piece.tile.channel < a.channels;
  }
  // `use(sums of piece p)`, where p is known only when the kernel runs: registers have no index.
  template <class Use>
  __device__ __forceinline__ void with_sums(int p, const Use& use) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i == p) use(sums[i / kColumns] + i % kColumns * (kDensePiece / 2));
    }
  }

  __device__ __forceinline__ Element* first_vector(int slice) const {  // of the first piece
    return a.output.as<Element>() + vectors(0).offset(a.output.strides, slice);
  }
  // Of piece p; its vectors lie as far behind those of the first one, both of them.
  __device__ __forceinline__ WholeVectors<Element, ByPositions> whole_vectors(int p, Element* const (&first)[2]) const {
    const int positions = p / kColumns * 64, channels = p % kColumns * kDensePiece;
    const long long step =
        ByPositions ? positions + channels * a.output.strides[1] : positions * a.output.strides[2] + channels;
    WholeVectors<Element, ByPositions> whole;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      whole.to[s] = first[s] + step;
      whole.exists[s] = tile.position + piece.position(s) + positions < a.output_length &&
                        tile.channel + piece.channel(s) + channels < a.channels;
    }
    return whole;
  }
  template <bool Aligned>
  __device__ __forceinline__ void finish_whole(int p, const float* own, Element* const (&first)[2]) const {
    float values[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) values[i] = own[i];
    finish_sums<Aligned, Post, Element, ByPositions>(a, piece, whole_vectors(p, first), values, staged, bias_of(p));
  }
  // Whole vectors, a chain without tensors. What is done in more than a few instructions stands once, or it would not
  // fit into the instruction cache.
  __device__ __forceinline__ void finish_without_tensors() const {
    Element* const first[2] = {first_vector(0), first_vector(1)};
    if (a.aligned_vectors && !Post{a.post}.is_long()) {
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
        finish_whole<true>(p, sums[p / kColumns] + p % kColumns * (kDensePiece / 2), first);
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
      finish_whole<false>(p, values, first);
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
  __device__ __forceinline__ void finish_with_tensors() const {
    const Post chain{a.post};
    const auto load = [&](int p) {
      const PieceVectors<ByPositions> own = vectors(p);
      return load_operands<8, 2>(chain, a.post, [own](const long long* strides, int s) {
        return own.place(strides, s, own.left(s) > 0 ? 8 : 0);
      });
    };
    Element* const first[2] = {first_vector(0), first_vector(1)};
    auto loads = load(0);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const PieceVectors<ByPositions> own = vectors(p);
      float values[16];
      stage(p, values);
      const auto next = load(p + 1 < kCount ? p + 1 : p);
      chain.template apply<8, 2>(values, loads);
      loads = next;
      whole_vectors(p, first).store(a, piece.lane, {pack<Element>(values), pack<Element>(values + 8)});
    }
  }

  // At the edges, and where vectors are no runs of memory.
  __device__ __forceinline__ void finish_elements() const {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const PieceVectors<ByPositions> own = vectors(p);
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

template <class Post, class Element, int Blocks, int Channels, bool ByPositions>
__device__ __forceinline__ void finish_tile(const DenseArguments& a, const DenseTile& tile, DenseShared& shared,
                                            int warpgroup, const DenseSums<Blocks, Channels>& sums) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const DenseTile own = {tile.batch, tile.position + first_position<Blocks>(a, warpgroup) + warp * 16, tile.channel};
  const WarpPieces<Post, Element, Blocks, Channels, ByPositions> pieces{
      a, sums, own, shared.staged[warpgroup * 4 + warp], shared.bias[warpgroup], {own_lane()}};
  const int extent = ByPositions ? a.output_length : a.channels;
  const int end = ByPositions ? own.position + (Blocks - 1) * 64 + 16 : own.channel + Channels;
  if (!a.whole_vectors || (end > extent && extent % 8 != 0)) {
    pieces.finish_elements();
  } else if (Post{a.post}.has_operands()) {
    pieces.finish_with_tensors();
  } else {
    pieces.finish_without_tensors();
  }
}

template <int Channels>
__device__ __forceinline__ void load_bias(const DenseArguments& a, const DenseTile& tile, DenseShared& shared,
                                          int warpgroup) {
  const int own = threadIdx.x % 128, channel = tile.channel + own;
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");  // the tile before is stored
  if (own < Channels) {
    const bool exists = a.bias.exists() && channel < a.channels;
    shared.bias[warpgroup][own] =
        exists ? load_as<float>(a.bias.data, known_dtype(LinkedTensor::bias, a.bias.dtype), channel * a.bias.strides[0])
               : 0.0f;
  }
  asm volatile("bar.sync %0, 128;" : : "r"(1 + warpgroup) : "memory");
}

}  // namespace sluice
