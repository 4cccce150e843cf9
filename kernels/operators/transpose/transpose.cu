// A tile of 16 KiB a block:
//
//   64 columns by as many rows as fit; fewer columns, or fewer rows, where there are fewer
//     |  lanes along columns, 16 bytes each, or an element where rows are not aligned
//   shared memory: rows, padded so that the elements of a column are in different banks
//     |  lanes along rows, an element each, or two of a half type
//   columns of the result
#include <cstdint>

#include "kernels/operators/transpose/launch.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/launch.cuh"
#include "kernels/shared/common/vector.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256, kTileBytes = 16 * 1024, kUsualShift = 6;
// Elements of a word and of a tile, as powers of two.
template <class Bits>
inline constexpr int kWordShift = sizeof(Bits) == 2   ? 3
                                  : sizeof(Bits) == 4 ? 2
                                                      : 1;
template <class Bits>
inline constexpr int kTileShift = 10 + kWordShift<Bits>;
static_assert(kTileBytes == kWordBytes << 10);

struct TransposeArguments : TransposeParams {
  int shift;  // a tile has 2^shift columns
  FastDivisor by_column_tiles, by_row_tiles;

  SLUICE_HOST_DEVICE int tile_columns() const { return 1 << shift; }
};

// Shared-memory bytes from a row to the next row.
template <class Bits>
SLUICE_HOST_DEVICE int row_bytes(int shift) {
  return (static_cast<int>(sizeof(Bits)) << shift) + (sizeof(Bits) == 8 ? 8 : 4);
}
template <class Bits>
SLUICE_HOST_DEVICE int tile_rows(int shift) {
  return 1 << (kTileShift<Bits> - shift);
}

struct Tile {
  int rows, columns;  // rows and columns that exist
};

template <class Bits>
__device__ __forceinline__ void load_words(const Bits* from, long long row_stride, int shift, const Tile& tile,
                                           char* memory) {
  constexpr int kElements = kWordBytes / static_cast<int>(sizeof(Bits));
  constexpr int kWords = kTileBytes / kWordBytes / kThreads;
  const int pitch = row_bytes<Bits>(shift), words_shift = shift - kWordShift<Bits>;  // log2 of a row's words
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int number = i * kThreads + static_cast<int>(threadIdx.x), row = number >> words_shift;
    const int column = (number & ((1 << words_shift) - 1)) * kElements;
    const Bits* const at = from + row * row_stride + column;
    Word word{};
    if (row < tile.rows && column + kElements <= tile.columns) {
      word = load_word(at);
    } else if (row < tile.rows) {
      Bits elements[kElements] = {};
      for (int j = 0; j < kElements; ++j) {
        if (column + j < tile.columns) elements[j] = at[j];
      }
      __builtin_memcpy(&word, elements, sizeof(word));
    }
    auto* const to = reinterpret_cast<std::uint32_t*>(memory + row * pitch + column * static_cast<int>(sizeof(Bits)));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) to[lane] = word.lanes[lane];
  }
}

template <class Bits>
__device__ __forceinline__ void load_elements(const Bits* from, long long row_stride, int shift, const Tile& tile,
                                              char* memory) {
  const int pitch = row_bytes<Bits>(shift);
#pragma unroll 16
  for (int i = static_cast<int>(threadIdx.x); i < 1 << kTileShift<Bits>; i += kThreads) {
    const int row = i >> shift, column = i & ((1 << shift) - 1);
    const Bits element = row < tile.rows && column < tile.columns ? from[row * row_stride + column] : Bits{};
    *reinterpret_cast<Bits*>(memory + row * pitch + column * static_cast<int>(sizeof(Bits))) = element;
  }
}

template <class Bits>
__device__ __forceinline__ void store_elements(Bits* to, const long long* strides, int shift, const Tile& tile,
                                               const char* memory) {
  const int pitch = row_bytes<Bits>(shift), row_mask = tile_rows<Bits>(shift) - 1;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < 1 << kTileShift<Bits>; i += kThreads) {
    const int column = i >> (kTileShift<Bits> - shift), row = i & row_mask;
    if (column < tile.columns && row < tile.rows) {
      to[column * strides[2] + row * strides[1]] =
          *reinterpret_cast<const Bits*>(memory + row * pitch + column * static_cast<int>(sizeof(Bits)));
    }
  }
}

// Two rows of two columns a step; each column's pair of rows is an aligned 4 bytes of the result.
__device__ __forceinline__ void store_pairs(std::uint16_t* to, long long column_stride, int shift, const Tile& tile,
                                            const char* memory) {
  using Bits = std::uint16_t;
  const int pitch = row_bytes<Bits>(shift), pair_mask = tile_rows<Bits>(shift) / 2 - 1;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < 1 << (kTileShift<Bits> - 2); i += kThreads) {
    const int column = i >> (kTileShift<Bits> - 1 - shift) << 1, row = (i & pair_mask) << 1;
    if (column >= tile.columns || row >= tile.rows) continue;
    const char* const at = memory + row * pitch + column * static_cast<int>(sizeof(Bits));
    const auto upper = *reinterpret_cast<const std::uint32_t*>(at);
    const auto lower = *reinterpret_cast<const std::uint32_t*>(at + pitch);
    const std::uint32_t pairs[2] = {__byte_perm(upper, lower, 0x5410), __byte_perm(upper, lower, 0x7632)};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (column + j >= tile.columns) continue;
      std::uint16_t* const place = to + (column + j) * column_stride + row;
      if (row + 1 < tile.rows) {
        *reinterpret_cast<std::uint32_t*>(place) = pairs[j];
      } else {
        *place = static_cast<std::uint16_t>(pairs[j]);
      }
    }
  }
}

// Elements are copied as bits.
template <class Bits, bool kWords, bool kPairs>
__global__ void __launch_bounds__(kThreads) transpose_kernel(const __grid_constant__ TransposeArguments a) {
  extern __shared__ __align__(kWordBytes) char memory[];
  const long long upper = a.by_column_tiles.quotient(blockIdx.x), batch = a.by_row_tiles.quotient(upper);
  const int tile_length = tile_rows<Bits>(a.shift);
  const long long first_column =
      (blockIdx.x - upper * static_cast<long long>(a.by_column_tiles.divisor)) * a.tile_columns();
  const long long first_row = (upper - batch * static_cast<long long>(a.by_row_tiles.divisor)) * tile_length;
  const Tile tile{static_cast<int>(min_of<long long>(tile_length, a.rows - first_row)),
                  static_cast<int>(min_of<long long>(a.tile_columns(), a.columns - first_column))};
  const auto* const from =
      a.from.as<const Bits>() + batch * a.from.strides[0] + first_row * a.from.strides[1] + first_column;
  auto* const to =
      a.to.as<Bits>() + batch * a.to.strides[0] + first_row * a.to.strides[1] + first_column * a.to.strides[2];
  if constexpr (kWords) {
    load_words(from, a.from.strides[1], a.shift, tile, memory);
  } else {
    load_elements(from, a.from.strides[1], a.shift, tile, memory);
  }
  __syncthreads();
  if constexpr (kPairs) {
    store_pairs(to, a.to.strides[2], a.shift, tile, memory);
  } else {
    store_elements(to, a.to.strides, a.shift, tile, memory);
  }
}

using TransposeKernel = void (*)(TransposeArguments);

template <class Bits>
TransposeKernel kernel_of(bool words, bool pairs) {
  if constexpr (sizeof(Bits) == 2) {
    if (pairs) return words ? transpose_kernel<Bits, true, true> : transpose_kernel<Bits, false, true>;
  }
  return words ? transpose_kernel<Bits, true, false> : transpose_kernel<Bits, false, false>;
}

// Whether vectors of `width` elements along the contiguous dimension are aligned; `other` is the stride of the third.
bool has_vectors(const Operand<3>& operand, long long batch, long long other, int width) {
  const auto address = reinterpret_cast<std::uintptr_t>(operand.data);
  const bool samples = batch == 1 || operand.strides[0] % width == 0;
  return samples && address % (width * size_of(operand.dtype)) == 0 && other % width == 0;
}

template <class Bits>
cudaError_t launch_as(TransposeArguments a, cudaStream_t stream) {
  const bool words = has_vectors(a.from, a.batch, a.from.strides[1], kWordElements<Bits>);
  // Columns of the tile: fewer where the matrix has fewer, more where it has few rows.
  const int least = words ? kWordShift<Bits> : 1;
  int most = kUsualShift;
  while (most < kTileShift<Bits> - 1 && tile_rows<Bits>(most + 1) >= a.rows) ++most;
  a.shift = least;
  while (a.shift < most && a.tile_columns() < a.columns) ++a.shift;
  const long long column_tiles = ceil_div<long long>(a.columns, a.tile_columns());
  const long long row_tiles = ceil_div<long long>(a.rows, tile_rows<Bits>(a.shift));
  a.by_column_tiles = FastDivisor(column_tiles);
  a.by_row_tiles = FastDivisor(row_tiles);
  const bool pairs = a.to.strides[1] == 1 && has_vectors(a.to, a.batch, a.to.strides[2], 2);
  return launch_kernel(kernel_of<Bits>(words, pairs), a.batch * row_tiles * column_tiles, kThreads,
                       tile_rows<Bits>(a.shift) * row_bytes<Bits>(a.shift), stream, a);
}

}  // namespace

cudaError_t launch_transpose(const TransposeParams& params, cudaStream_t stream) {
  switch (size_of(params.from.dtype)) {
    case 2: return launch_as<std::uint16_t>({params}, stream);
    case 4: return launch_as<std::uint32_t>({params}, stream);
    default: return launch_as<std::uint64_t>({params}, stream);
  }
}

}  // namespace sluice
