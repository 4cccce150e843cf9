// Copies the image under a tile to shared memory: by words where columns are adjacent, else element by element, for any
// layout, border and dtype.
//
//   image   ...xx|vvvvvvvv|vvvvvvvv|xx...     aligned words, shifted in registers
//   tile         |vvvvvvvv|vvvvvvvv|          its rows begin at a word; zeros or the border's pixels around the image
#pragma once

#include "kernels/operators/filter2d/sampled.cuh"

namespace sluice {

// What a block copies: `rows` of the image, with zeros or a border around it, from (row, column) on, to as many rows of
// the tile or more, the others of zeros.
struct TileCorner {
  long long batch, channel, row, column;
  int rows, tile_rows;
};

// A block's tile of so many rows and columns. Adjacent blocks have adjacent channels where these share sectors.
template <class Element>
__device__ __forceinline__ Filter2dTile tile_of_block(const Filter2dArguments<Element>& a, int rows, int columns) {
  long long index = blockIdx.x;
  const auto split = [&](const FastDivisor& divisor) {
    const long long quotient = divisor.quotient(index), rest = index - quotient * divisor.divisor;
    index = quotient;
    return rest;
  };
  long long channel = a.channels_together ? split(a.by_channels) : 0;
  const long long across = split(a.by_across), down = split(a.by_down);
  if (!a.channels_together) channel = split(a.by_channels);
  return {index, channel, down * rows, across * columns};
}

// The elements (or words) of a tile that a thread copies: number `across` of every `step`th row from `down` on.
struct TileShare {
  int down, across, step;

  __device__ __forceinline__ TileShare(int in_row) {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    if (in_row >= threads) {
      down = 0, across = thread, step = 1;
    } else {
      down = thread / in_row, across = thread - down * in_row, step = threads / in_row;
      if (down >= step) across = in_row;  // the threads beyond whole rows copy nothing
    }
  }
};

// `put(down, across, value)` for `pitch` elements of each row of the tile, of type Stored and with `pre`. Lanes have
// adjacent elements.
template <class Pre, class Image, class Stored, class Element, class Put>
__device__ __forceinline__ void fetch_elements(const SamplingArguments<Element>& a, const TileCorner& corner, int pitch,
                                               const Put& put) {
  using T = Compute<Element>;
  constexpr int kAtOnce = 16;
  const int row = static_cast<int>(corner.row);
  const int row_bytes = static_cast<int>(a.image.strides[2]) * static_cast<int>(sizeof(Image));
  const Image* const plane =
      a.image.template as<const Image>() + corner.batch * a.image.strides[0] + corner.channel * a.image.strides[1];
  const BorderRows border(a.height, a.sampling.border);
  const TileShare share(pitch);
#pragma unroll 1
  for (int across = share.across; across < pitch; across += static_cast<int>(blockDim.x)) {
    const long long x = pixel_at(corner.column + across, a.width, a.sampling.border);
    const auto* const pixels = reinterpret_cast<const char*>(plane + max_of(x, 0LL) * a.image.strides[3]);
    const int own_rows = x >= 0 ? corner.rows : 0;
#pragma unroll 1
    for (int first_down = share.down; first_down < corner.tile_rows; first_down += kAtOnce * share.step) {
      Stored values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step, y = border.at(row + down);
        const bool exists = down < own_rows && border.has(y);
        const char* const from = pixels + static_cast<long long>(y) * row_bytes;
        const Image pixel = exists ? *reinterpret_cast<const Image*>(from) : Image{};
        if constexpr (std::is_same_v<Image, Stored>) {
          values[i] = pixel;
        } else {
          values[i] = pixel_value<Image, Stored>(pixel);
        }
        if (!Pre{a.pre}.empty() && exists) {
          values[i] =
              convert<Stored>(prepare_pixel<Pre>(a, pixel_value<Image, T>(pixel), corner.batch, corner.channel, y, x));
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step;
        if (down < corner.tile_rows) put(down, across, values[i]);
      }
    }
  }
}

// Whether fetch_words can copy a tile of `columns`: the tile's pixels that are not in the image are zeros.
template <class Element>
__device__ __forceinline__ bool has_words(const SamplingArguments<Element>& a, const TileCorner& corner, int columns) {
  const bool inside = corner.row >= 0 && corner.row + corner.rows <= a.height && corner.column >= 0 &&
                      corner.column + columns <= a.width;
  return a.image.strides[3] == 1 && (inside || a.sampling.border == Border::zeros);
}

// Where an image's columns are adjacent: a word of the tile, from the two aligned words around it. These may hold
// elements of other rows, but not of other planes, where memory may end.
template <class Element>
struct WordUnderTile {
  int shift;         // bytes that it begins after the lower word
  bool low, high;    // whether these two are loaded,
  bool is_gathered;  // unless some of its elements are in a word that is not

  // `offset`: bytes from the plane's first element, `misalignment` of that; the word is at column x of a row.
  __device__ __forceinline__ WordUnderTile(bool exists, int offset, int misalignment, int x, int width,
                                           int plane_bytes) {
    constexpr int kWidth = kWordElements<Element>;
    shift = (offset + misalignment) & (kWordBytes - 1);
    const int first = offset - shift, column = x - shift / static_cast<int>(sizeof(Element));
    const int most = plane_bytes - kWordBytes;
    const bool needs_low = exists && column > -kWidth;
    const bool needs_high = exists && shift > 0 && column + kWidth < width;
    low = needs_low && first >= 0 && first <= most;
    high = needs_high && first + kWordBytes >= 0 && first + kWordBytes <= most;
    is_gathered = low != needs_low || high != needs_high;
  }
};

// The bits of a word's elements that are in columns 0 .. width - 1; it begins at column x.
template <class Element>
__device__ __forceinline__ void mask_of_columns(int x, int width, std::uint32_t (&mask)[4]) {
  const auto has = [&](int column) { return static_cast<unsigned>(column) < static_cast<unsigned>(width); };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(Element) == 2) {
      mask[i] = (has(x + 2 * i) ? 0x0000ffffu : 0u) | (has(x + 2 * i + 1) ? 0xffff0000u : 0u);
    } else {
      mask[i] = has(x + i) ? 0xffffffffu : 0u;
    }
  }
}

// `put(down, word, values)` for `in_row` words of each row of the tile. 16 bits or 32 an element.
template <class Pre, class Element, class Put>
__device__ __forceinline__ void fetch_words(const SamplingArguments<Element>& a, const TileCorner& corner, int in_row,
                                            const Put& put) {
  constexpr int kWidth = kWordElements<Element>, kAtOnce = 4, kSize = static_cast<int>(sizeof(Element));
  const char* const plane = a.image.template as<const char>() +
                            (corner.batch * a.image.strides[0] + corner.channel * a.image.strides[1]) * kSize;
  const int misalignment = static_cast<int>(reinterpret_cast<std::uintptr_t>(plane) & (kWordBytes - 1));
  const int row = static_cast<int>(corner.row), height = static_cast<int>(a.height);
  const int row_bytes = static_cast<int>(a.image.strides[2]) * kSize, width = static_cast<int>(a.width);
  const int plane_bytes = (height - 1) * row_bytes + width * kSize;
  const TileShare share(in_row);
#pragma unroll 1
  for (int word = share.across; word < in_row; word += static_cast<int>(blockDim.x)) {
    const int x = static_cast<int>(corner.column) + word * kWidth;
    const int own_rows = x > -kWidth && x < width ? corner.rows : 0;
    std::uint32_t mask[4];
    mask_of_columns<Element>(x, width, mask);
#pragma unroll 1
    for (int first_down = share.down; first_down < corner.tile_rows; first_down += kAtOnce * share.step) {
      Word low[kAtOnce], high[kAtOnce];
      const auto from_of = [&](int i) {
        const int down = first_down + i * share.step, y = row + down;
        const bool exists = down < own_rows && static_cast<unsigned>(y) < static_cast<unsigned>(height);
        return WordUnderTile<Element>(exists, y * row_bytes + x * kSize, misalignment, x, width, plane_bytes);
      };
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const WordUnderTile<Element> from = from_of(i);
        const char* const at = plane + ((row + first_down + i * share.step) * row_bytes + x * kSize - from.shift);
        low[i] = high[i] = Word{};
        if (from.low) low[i] = load_word(at);
        if (from.high) high[i] = load_word(at + kWordBytes);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step, y = row + down;
        if (down >= corner.tile_rows) break;
        const WordUnderTile<Element> from = from_of(i);
        Word own = shifted(low[i], high[i], from.shift);
#pragma unroll
        for (int j = 0; j < 4; ++j) own.lanes[j] &= mask[j];
        if (from.is_gathered) own = gather_word(a, corner.batch, corner.channel, y, x);
        if (!Pre{a.pre}.empty() && down < own_rows) {
          own = apply_pre<Pre>(a, own, corner.batch, corner.channel, y, x);
        }
        put(down, word, own);
      }
    }
  }
}

}  // namespace sluice
