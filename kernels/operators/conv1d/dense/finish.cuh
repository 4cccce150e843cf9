// The epilogue of a tile: bias, `post`, and stores of whole vectors.
//
//   result              half types                                      float32
//   whole vectors       registers, half types in shared memory          of channels: float32 in shared memory
//   unaligned vectors   the same, words shifted                         registers, and so for vectors of positions
//   tensors in `post`   float32 in shared memory                        likewise
//   neither             float32 in shared memory, element by element    likewise
#pragma once

#include "kernels/operators/conv1d/dense/epilogue_tile.cuh"
#include "kernels/operators/conv1d/dense/multiply.cuh"
#include "kernels/operators/conv1d/dense/unaligned_rows.cuh"
#include "kernels/shared/mma/matrices.cuh"

namespace sluice {

// Adds the bias and runs the chain in registers.
template <class Post>
__device__ __forceinline__ void change_sums(const DenseArguments& a, int lane, float (&values)[16], const float* bias) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 added = *reinterpret_cast<const float2*>(bias + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[j * 4 + i] += i % 2 == 0 ? added.x : added.y;
  }
  run_chain<Post, 8, 2>(a.post, [](const long long*, int) { return Place{}; }, values);
}

// The same, then stores the rounded sums as matrices of 8 x 8 into an epilogue tile's rows of half types in shared
// memory: rows of 32 channels, or of positions. `address_of(call)`: this lane's matrix row, of 16 channels by 16
// positions.
template <class Post, class Element, bool ByPositions, class AddressOf>
__device__ __forceinline__ void round_sums(const DenseArguments& a, int lane, float (&values)[16], const float* bias,
                                           const AddressOf& address_of) {
  change_sums<Post>(a, lane, values, bias);
  __syncwarp();
#pragma unroll
  for (int call = 0; call < 2; ++call) {
    std::uint32_t matrices[4];
#pragma unroll
    for (int m = 0; m < 4; ++m)
      matrices[m] = Pair<Element>::store(values[call * 8 + m * 2], values[call * 8 + m * 2 + 1]);
    store_matrices<ByPositions>(address_of(call), matrices);
  }
  __syncwarp();
}

// Into the warp's own epilogue tile, whose words are swizzled.
template <class Post, class Element, bool ByPositions>
__device__ __forceinline__ void round_sums(const DenseArguments& a, int lane, float (&values)[16], std::uint32_t to,
                                           const float* bias) {
  constexpr int kRowBytes = kEpilogueRowBytes<ByPositions>;
  round_sums<Post, Element, ByPositions>(a, lane, values, bias, [&](int call) {
    const int positions = lane / 8 % 2, channels = call * 2 + lane / 16;
    const int row = lane % 8 + 8 * (ByPositions ? channels : positions);
    const int offset = row * kRowBytes + (ByPositions ? positions : channels) * 16;
    return to + swizzled(static_cast<std::uint32_t>(offset), kRowBytes);
  });
}

// An epilogue tile whose `post` has no tensors: the chain runs in registers, and half types pass through shared memory.
// `aligned`: as in StoredVectors.
template <class Post, class Element, bool ByPositions>
__device__ __forceinline__ void finish_sums(const DenseArguments& a, const EpilogueTile<ByPositions>& epilogue_tile,
                                            bool aligned, const StoredVectors<Element, ByPositions>& vectors,
                                            float (&values)[16], float* staged, const float* bias) {
  constexpr int kRowBytes = kEpilogueRowBytes<ByPositions>;
  const std::uint32_t to = shared_address(staged);
  round_sums<Post, Element, ByPositions>(a, epilogue_tile.lane, values, to, bias);
  Word words[2];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const int row = epilogue_tile.row + s * EpilogueTile<ByPositions>::kStep;
    const auto offset = static_cast<std::uint32_t>(row * kRowBytes + epilogue_tile.vector * 16);
    words[s] = load_shared_word(to + swizzled(offset, kRowBytes));
  }
  vectors.store(aligned, words);
}

// `use(sums)` of epilogue tile p, for a p that is known only at run time: registers cannot be indexed.
template <int Blocks, int Channels, class Use>
__device__ __forceinline__ void with_tile_sums(const DenseSums<Blocks, Channels>& sums, int p, const Use& use) {
  constexpr int kColumns = Channels / kEpilogueColumns;
#pragma unroll
  for (int i = 0; i < Blocks * kColumns; ++i) {
    if (i == p) use(sums[i / kColumns] + i % kColumns * (kEpilogueColumns / 2));
  }
}

// A warp's epilogue tiles: its 16 positions of each block of 64.
template <class Post, class Element, int Blocks, int Channels, bool ByPositions, class Arguments>
struct WarpEpilogueTiles {
  static constexpr int kColumns = Channels / kEpilogueColumns, kCount = Blocks * kColumns;
  const Arguments& a;
  const DenseSums<Blocks, Channels>& sums;
  DenseTile tile;
  float* staged;
  const float* bias;
  EpilogueTile<ByPositions> epilogue_tile;

  __device__ __forceinline__ EpilogueVectors<ByPositions, Arguments> vectors(int p) const {
    return {a,
            {tile.batch, tile.position + p / kColumns * 64, tile.channel + p % kColumns * kEpilogueColumns,
             tile.group_or_split},
            epilogue_tile};
  }
  __device__ __forceinline__ const float* bias_of(int p) const { return bias + p % kColumns * kEpilogueColumns; }
  __device__ __forceinline__ bool exists(
      const EpilogueVectors<ByPositions, Arguments>& own) const {  // for all of the warp
    return own.tile.position < a.output_length && own.tile.channel < a.channels_end(tile.group_or_split);
  }
  template <class Use>
  __device__ __forceinline__ void with_sums(int p, const Use& use) const {
    with_tile_sums<Blocks, Channels>(sums, p, use);
  }

  __device__ __forceinline__ Element* first_vector(int slice) const {  // the first epilogue tile's vector
    return a.output.template as<Element>() + vectors(0).offset(a.output.strides, slice);
  }
  // The vectors of epilogue tile p, both at the same distance from the first tile's vectors.
  __device__ __forceinline__ StoredVectors<Element, ByPositions> stored(int p, Element* const (&first)[2]) const {
    const int positions = p / kColumns * 64, channels = p % kColumns * kEpilogueColumns;
    const long long step =
        ByPositions ? positions + channels * a.output.strides[1] : positions * a.output.strides[2] + channels;
    const int positions_left = a.output_length - tile.position - positions;
    const int channels_left = a.channels_end(tile.group_or_split) - tile.channel - channels;
    StoredVectors<Element, ByPositions> own{epilogue_tile.vector, {}, {}};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      own.to[s] = first[s] + step;
      own.count[s] = ByPositions ? (epilogue_tile.channel(s) < channels_left ? positions_left : 0)
                                 : (epilogue_tile.position(s) < positions_left ? channels_left : 0);
    }
    return own;
  }
  __device__ __forceinline__ void finish_epilogue_tile(int p, bool aligned, const float* own,
                                                       Element* const (&first)[2]) const {
    float values[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) values[i] = own[i];
    finish_sums<Post>(a, epilogue_tile, aligned, stored(p, first), values, staged, bias_of(p));
  }
  // `finish(p, sums)` for each epilogue tile p = order(i). Only short code is unrolled, or it would not fit into the
  // instruction cache.
  template <class Order, class Finish>
  __device__ __forceinline__ void for_each_tile(bool is_short, const Order& order, const Finish& finish) const {
    if (is_short) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int p = order(i);
        finish(p, sums[p / kColumns] + p % kColumns * (kEpilogueColumns / 2));
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kCount; ++i) {
      const int p = order(i);
      float values[16];
      with_sums(p, [&](const float* own) {
#pragma unroll
        for (int j = 0; j < 16; ++j) values[j] = own[j];
      });
      finish(p, values);
    }
  }
  // A chain without tensors.
  __device__ __forceinline__ void finish_without_tensors(bool aligned) const {
    Element* const first[2] = {first_vector(0), first_vector(1)};
    for_each_tile(
        aligned && !Post{a.post}.is_long(), [](int i) { return i; },
        [&](int p, const float* own) { finish_epilogue_tile(p, aligned, own, first); });
  }

  // Unaligned rows of positions: a warp's 16 positions would be two words shared with other warps, and a store of 16
  // rows' elements takes 16 cycles. So the four warps of a warpgroup combine their epilogue tiles.
  __device__ __forceinline__ void finish_rows(int warpgroup, int warp, std::uint32_t rows) const {
    await_warpgroup(warpgroup);  // the previous tile is stored
    Element* const result = a.output.template as<Element>() + tile.batch * a.output.strides[0] +
                            tile.channel * a.output.strides[1] + (tile.position - warp * 16);
    const UnalignedRows<Element> unaligned(warp, epilogue_tile.lane,
                                           [&](int row) { return result + row * a.output.strides[1]; });
    static_assert(2 * UnalignedRows<Element>::kBytes <= 4 * kEpilogueFloats * 4);
    std::uint32_t shared_rows = rows;
    const auto finish = [&](int p, const float* own) {
      const int positions = p / kColumns * 64, channels = p % kColumns * kEpilogueColumns;
      const int positions_left = a.output_length - (tile.position - warp * 16) - positions;
      const int channels_left = a.channels_end(tile.group_or_split) - tile.channel - channels;
      if (positions_left <= 0 || channels_left <= 0) return;  // for all four
      float values[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) values[i] = own[i];
      round_sums<Post, Element, true>(a, epilogue_tile.lane, values, bias_of(p),
                                      [&](int call) { return shared_rows + unaligned.matrix(call); });
      await_warpgroup(warpgroup);
      unaligned.store(shared_rows, channels * a.output.strides[1] + positions, channels_left, positions_left);
      shared_rows = 2 * rows + UnalignedRows<Element>::kBytes - shared_rows;  // other warps may still read
    };
    // A row's epilogue tiles consecutively: two of them share a sector of 32 bytes, which reaches device memory twice
    // where the second is late.
    const auto in_rows = [](int i) { return i % Blocks * kColumns + i / Blocks; };
    for_each_tile(!Post{a.post}.is_long(), in_rows, finish);
  }

  // Through float32 in shared memory into the vectors that the chain's tensors are loaded as.
  __device__ __forceinline__ void exchange(int p, float (&values)[16]) const {
    __syncwarp();
    with_sums(p, [&](const float* own) { epilogue_tile.to_shared(own, staged); });
    __syncwarp();
    epilogue_tile.load(staged, bias_of(p), values);
  }

  // Whole vectors through float32 in shared memory. The chain's tensors are loaded one epilogue tile ahead.
  __device__ __forceinline__ void finish_vectors(bool aligned) const {
    const Post chain{a.post};
    const auto load = [&](int p) {
      const EpilogueVectors<ByPositions, Arguments> own = vectors(p);
      return load_operands<8, 2>(chain, a.post, [own](const long long* strides, int s) {
        return own.place(strides, s, own.left(s) > 0 ? 8 : 0);
      });
    };
    Element* const first[2] = {first_vector(0), first_vector(1)};
    auto loads = load(0);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const EpilogueVectors<ByPositions, Arguments> own = vectors(p);
      float values[16];
      exchange(p, values);
      const auto next = load(p + 1 < kCount ? p + 1 : p);
      chain.template apply<8, 2>(values, loads);
      loads = next;
      const VectorWords<Element> vector(values);
      if constexpr (sizeof(Element) == 4) {
        stored(p, first).store_aligned(vector.words);
      } else {
        stored(p, first).store(aligned, vector.words);
      }
    }
  }

  // An epilogue tile from the registers that the products leave its sums in (wgmma.cuh): a store is a sector of memory
  // of each of four channels, or of eight positions.
  __device__ __forceinline__ void store_registers(int p, const float* own) const {
    const int lane = epilogue_tile.lane, rows = p / kColumns * 64 + lane / 4;
    const int columns = p % kColumns * kEpilogueColumns + lane % 4 * 2;
    const int positions_left = a.output_length - tile.position - rows;
    const int channels_left = a.channels_end(tile.group_or_split) - tile.channel - columns;
    float values[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) values[i] = own[i] + bias_of(p)[i / 4 * 8 + lane % 4 * 2 + i % 2];
    run_chain<Post, 8, 2>(a.post, [](const long long*, int) { return Place{}; }, values);
    const long long row_step = ByPositions ? 1 : a.output.strides[2];
    const long long column_step = ByPositions ? a.output.strides[1] : 1;
    Element* to = a.output.template as<Element>() + tile.batch * a.output.strides[0] +
                  (tile.position + rows) * row_step + (tile.channel + columns) * column_step;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // columns 0, 1, 8, 9 ..
      const int column = i / 2 * 8 + i % 2;
#pragma unroll
      for (int row = 0; row < 16; row += 8) {
        if (row < positions_left && column < channels_left) to[row * row_step] = values[i / 2 * 4 + row / 4 + i % 2];
      }
      to = kept(to + (i % 2 == 0 ? 1 : 7) * column_step);
    }
  }
  __device__ __forceinline__ void finish_registers() const {
    for_each_tile(
        !Post{a.post}.is_long(), [](int i) { return i; }, [&](int p, const float* own) { store_registers(p, own); });
  }

  // At the edges, and where vectors are not contiguous.
  __device__ __forceinline__ void finish_elements() const {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
#pragma unroll 1
    for (int p = 0; p < kCount; ++p) {
      const EpilogueVectors<ByPositions, Arguments> own = vectors(p);
      if (!exists(own)) continue;
      float values[16];
      exchange(p, values);
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
                         tile.group_or_split};
  const WarpEpilogueTiles<Post, Element, Blocks, Channels, ByPositions, Arguments> tiles{
      a, sums, own, shared.epilogue[warpgroup * 4 + warp], shared.bias[warpgroup], {own_lane()}};
  const int extent = ByPositions ? a.output_length : a.channels_end(tile.group_or_split);
  const int end = ByPositions ? own.position + (Blocks - 1) * 64 + 16 : own.channel + Channels;
  const bool whole_words = end <= extent || extent % kWordElements<Element> == 0;
  const bool has_tensors = Post{a.post}.has_operands();
  if constexpr (sizeof(Element) == 4) {
    const bool has_vectors = whole_words && (!has_tensors || end <= extent || extent % kEpilogueVector == 0);
    if (a.whole_vectors && a.aligned_vectors && has_vectors && (has_tensors || !ByPositions)) {
      tiles.finish_vectors(true);
    } else if (a.whole_vectors && !has_tensors) {
      tiles.finish_registers();
    } else {
      tiles.finish_elements();
    }
  } else {
    if constexpr (ByPositions) {
      if (a.whole_vectors && !a.aligned_vectors && !has_tensors) {
        return tiles.finish_rows(warpgroup, warp, shared_address(shared.epilogue[warpgroup * 4]));
      }
    }
    if (!a.whole_vectors || (has_tensors && !whole_words)) {
      tiles.finish_elements();
    } else if (has_tensors) {
      tiles.finish_vectors(a.aligned_vectors);
    } else {
      tiles.finish_without_tensors(a.aligned_vectors && whole_words);
    }
  }
}

template <int Channels, class Arguments>
__device__ __forceinline__ void load_bias(const Arguments& a, const DenseTile& tile, DenseShared& shared,
                                          int warpgroup) {
  const int own = threadIdx.x % 128, channel = tile.channel + own;
  await_warpgroup(warpgroup);  // the previous tile is stored
  if (own < Channels) {
    const bool exists = a.bias.exists() && channel < a.channels_end(tile.group_or_split);
    shared.bias[warpgroup][own] =
        exists ? load_as<float>(a.bias.data, known_dtype(LinkedTensor::bias, a.bias.dtype), channel * a.bias.strides[0])
               : 0.0f;
  }
  await_warpgroup(warpgroup);
}

}  // namespace sluice
