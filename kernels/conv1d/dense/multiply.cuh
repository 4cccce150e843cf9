// The multiplying warpgroups of the dense kernel: sums of a tile in registers, and their way to the result.
//
//   warpgroup 0   positions 0 .. 64 Blocks - 1 of the tile     for each 16 input channels of each tap, Blocks products
//   warpgroup 1   the other half                               of 64 positions by all channels of the tile
#pragma once

#include "kernels/conv1d/dense/arguments.cuh"
#include "kernels/mma/wgmma.cuh"

namespace sluice {

template <int Blocks, int Channels>
using DenseSums = float[Blocks][Channels / 2];

// The sums of one tile. Stages are given back one group of products late, when it is known that they are over.
template <class Element, int Blocks, int Channels>
__device__ __forceinline__ void multiply_tile(const DenseArguments& a, std::uint32_t inputs, std::uint32_t weights,
                                              DenseShared& shared, int warpgroup, RingPlace& input, RingPlace& weight,
                                              DenseSums<Blocks, Channels>& sums) {
  const bool signals = threadIdx.x % 128 == 0;
  const int steps = a.row_bytes / 32;
  int keep = 0;
  int weight_before = -1, input_before = -1;
  const auto give_back = [&] {
    if (signals && weight_before >= 0) arrive(shared.weight_empty + weight_before);
    if (signals && input_before >= 0) arrive(shared.input_empty + input_before);
    weight_before = input_before = -1;
  };
  for (int c = 0; c < a.chunks; ++c) {
    wait_for_phase(shared.input_full + input.stage, input.parity);
    const std::uint64_t rows = tile_descriptor(inputs + input.stage * a.input_stage_bytes(), a.row_bytes) +
                               descriptor_step((a.shift + warpgroup * 64 * Blocks) * a.row_bytes);
    for (int k = 0; k < a.taps; k += a.stage_taps) {
      wait_for_phase(shared.weight_full + weight.stage, weight.parity);
      const std::uint64_t columns =
          tile_descriptor(weights + weight.stage * a.weight_stage_bytes(Channels), a.row_bytes);
      const int taps = min_of(a.stage_taps, a.taps - k);
      fence_products();
      for (int i = 0; i < taps; ++i) {
        const std::uint64_t tap_rows = rows + descriptor_step((k + i) * a.dilation * a.row_bytes);
        const std::uint64_t tap_columns = columns + descriptor_step(i * Channels * a.row_bytes);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          if (s < steps) {
#pragma unroll
            for (int m = 0; m < Blocks; ++m) {
              multiply_tiles<Element, Channels>(sums[m], tap_rows + descriptor_step(m * 64 * a.row_bytes + s * 32),
                                                tap_columns + descriptor_step(s * 32), keep);
            }
            keep = 1;
          }
        }
      }
      commit_products();
      wait_for_products<1>();
      give_back();
      if (!a.resident) weight_before = weight.stage;
      weight.advance(a.weight_stages);
      if (a.resident) weight.parity = 0;
    }
    input_before = input.stage;
    input.advance(a.input_stages);
  }
  wait_for_products<0>();
  give_back();
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

  int row = static_cast<int>(threadIdx.x) % 32 / kVectors, vector = static_cast<int>(threadIdx.x) % kVectors;

  __device__ __forceinline__ int channel(int slice) const { return ByPositions ? row + slice * kStep : vector * 8; }
  __device__ __forceinline__ int position(int slice) const { return ByPositions ? vector * 8 : row + slice * kStep; }

  // Rows are not quite as they are read: channels' fours change places in odd rows, positions' fours in odd channels'
  // rows and their eights in every other four channels' ones.
  __device__ __forceinline__ static int twist(int row) {
    return ByPositions ? (row & 1) * 4 + (row & 4) * 2 : (row & 1) * 4;
  }

  // From where the sums are in the warp's registers.
  __device__ __forceinline__ static void stage(const float* sums, float* staged) {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4, column = static_cast<int>(threadIdx.x) % 4 * 2;
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

// `post` on a piece, and its store. `Inside`: all of it is there, in whole vectors of the input's type.
template <bool Inside, class Post, class Element, bool ByPositions>
__device__ __forceinline__ void finish_piece(const DenseArguments& a, const DenseTile& tile,
                                             const DensePiece<ByPositions>& piece, float (&values)[16]) {
  constexpr int kDimension = ByPositions ? 2 : 1;
  // `last` may be negative. Not max(0, min(8, left)): where that is compared with 8, ptxas of CUDA 13.0 compares
  // `left`.
  const auto place_of = [&](const long long* strides, int s) {
    const int channel = tile.channel + piece.channel(s), position = tile.position + piece.position(s);
    const long long offset = tile.batch * strides[0] + channel * strides[1] + position * strides[2];
    const int positions = a.output_length - position, channels = a.channels - channel;
    const int left = ByPositions ? (channels > 0 ? positions : 0) : (positions > 0 ? channels : 0);
    return Place{.offset = offset, .stride = strides[kDimension], .first = 0, .last = Inside ? 8 : min_of(8, left)};
  };
  run_chain<Post, 8, 2>(a.post, place_of, values);
  if constexpr (Inside) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      store_vector<Element, 8>(a.output.as<Element>() + place_of(a.output.strides, s).offset, values + s * 8);
    }
  } else {
    const DType dtype = known_dtype(LinkedTensor::output, a.output.dtype);
    store_slices<8, 2>(dtype, values, [&](auto* tag, int s, const float* own) {
      using Out = std::remove_pointer_t<decltype(tag)>;
      const Place place = place_of(a.output.strides, s);
      store_elements<Out, 8>(a.output.as<Out>() + place.offset, place.stride, 0, place.last, own);
    });
  }
}

// A piece whose `post` has no tensors, and which is inside: the chain runs on the sums where they are, and half types
// pass through shared memory, as matrices of 8 x 8.
template <class Post, class Element, bool ByPositions>
__device__ __forceinline__ void finish_sums(const DenseArguments& a, const DenseTile& tile,
                                            const DensePiece<ByPositions>& piece, const float* sums, float* staged,
                                            const float* bias) {
  constexpr int kRowBytes = ByPositions ? 32 : 64;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t to = shared_address(staged);
  float values[16];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 added = *reinterpret_cast<const float2*>(bias + j * 8 + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[j * 4 + i] = sums[j * 4 + i] + (i % 2 == 0 ? added.x : added.y);
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
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    const int row = piece.row + s * DensePiece<ByPositions>::kStep;
    const std::uint32_t offset = swizzled(static_cast<std::uint32_t>(row * kRowBytes + piece.vector * 16), kRowBytes);
    const Word word = load_word(reinterpret_cast<const char*>(staged) + offset);
    const long long* const strides = a.output.strides;
    const long long at = tile.batch * strides[0] + (tile.channel + piece.channel(s)) * strides[1] +
                         (tile.position + piece.position(s)) * strides[2];
    store_global_word(a.output.as<Element>() + at, word);
  }
}

// The part of a tile that a warp has. Inside, where the code is short, one piece after another is written out; at the
// edges, and with an interpreter, one stands for all.
template <bool Inside, class Post, class Element, int Blocks, int Channels, bool ByPositions>
__device__ __forceinline__ void store_pieces(const DenseArguments& a, const DenseTile& tile, float* staged,
                                             const float* bias, const DenseSums<Blocks, Channels>& sums) {
  constexpr int kColumns = Channels / kDensePiece, kPieces = Blocks * kColumns;
  constexpr int kUnrolled = Inside && Post::kIsInline ? kPieces : 1;
  const DensePiece<ByPositions> piece;
#pragma unroll kUnrolled
  for (int p = 0; p < kPieces; ++p) {
    const int block = p / kColumns, column = p % kColumns;
    const DenseTile own = {tile.batch, tile.position + block * 64, tile.channel + column * kDensePiece};
    if (!Inside && (own.position >= a.output_length || own.channel >= a.channels)) continue;  // all of the warp
    if constexpr (Inside && Post::kIsInline) {
      if (!Post{a.post}.has_operands()) {
        finish_sums<Post, Element>(a, own, piece, sums[block] + column * (kDensePiece / 2), staged,
                                   bias + column * kDensePiece);
        continue;
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (i == p) piece.stage(sums[i / kColumns] + i % kColumns * kDensePiece / 2, staged);
    }
    __syncwarp();
    float values[16];
    piece.load(staged, bias + column * kDensePiece, values);
    finish_piece<Inside, Post, Element, ByPositions>(a, own, piece, values);
  }
}

template <class Post, class Element, int Blocks, int Channels, bool ByPositions>
__device__ __forceinline__ void store_tile(const DenseArguments& a, const DenseTile& tile, DenseShared& shared,
                                           int warpgroup, const DenseSums<Blocks, Channels>& sums) {
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const DenseTile own = {tile.batch, tile.position + warpgroup * Blocks * 64 + warp * 16, tile.channel};
  float* const staged = shared.staged[warpgroup * 4 + warp];
  const float* const bias = shared.bias[warpgroup];
  const bool inside = a.whole_vectors && own.position + (Blocks - 1) * 64 + 16 <= a.output_length &&
                      own.channel + Channels <= a.channels;
  if (inside) {
    store_pieces<true, Post, Element, Blocks, Channels, ByPositions>(a, own, staged, bias, sums);
  } else {
    store_pieces<false, Post, Element, Blocks, Channels, ByPositions>(a, own, staged, bias, sums);
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
