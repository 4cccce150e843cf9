// Copies the image under a tile, and the taps, to shared memory for Toeplitz products (toeplitz.cuh).
//
//   image   ...xx|vvvvvvvv|vvvvvvvv|xx...     aligned words, shifted in registers
//   tile         |vvvvvvvv|vvvvvvvv|          its rows begin at a word; zeros or the border's pixels around the image
#pragma once

#include "kernels/filter2d/sampled.cuh"
#include "kernels/mma/toeplitz.cuh"

namespace sluice {

template <class Element>
struct ToeplitzArguments : SamplingArguments<Element> {
  FastDivisor by_lanes;
};

// What a block copies: `rows` of the image, with zeros or a border around it, from (row, column) on, to as many rows of
// the tile or more, the others of zeros.
struct ToeplitzCorner {
  long long batch, channel, row, column;
  int rows, tile_rows;
};

// The words (or elements) of a tile that a thread copies: number `across` of every `step`th row from `down` on.
struct ToeplitzShare {
  int down, across, step;

  __device__ __forceinline__ ToeplitzShare(int in_row) {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    if (in_row >= threads) {
      down = 0, across = thread, step = 1;
    } else {
      down = thread / in_row, across = thread - down * in_row, step = threads / in_row;
      if (down >= step) across = in_row;  // the threads beyond whole rows copy nothing
    }
  }
};

// Copies the image under the tile element by element: any layout and border. Lanes have adjacent elements.
template <class Pre, class Element>
__device__ __forceinline__ void fetch_elements(const ToeplitzArguments<Element>& a, const ToeplitzCorner& corner,
                                               std::uint32_t tile) {
  constexpr int kAtOnce = 16, kWidth = kWordElements<Element>, kSize = static_cast<int>(sizeof(Element));
  auto* const to = static_cast<Element*>(__cvta_shared_to_generic(tile));
  const int pitch = a.pitch_words * kWidth, row = static_cast<int>(corner.row);
  const int row_bytes = static_cast<int>(a.image.strides[2]) * kSize;
  const Element* const plane =
      a.image.template as<const Element>() + corner.batch * a.image.strides[0] + corner.channel * a.image.strides[1];
  const BorderRows border(a.height, a.sampling.border);
  const ToeplitzShare share(pitch);
#pragma unroll 1
  for (int across = share.across; across < pitch; across += static_cast<int>(blockDim.x)) {
    const long long x = pixel_at(corner.column + across, a.width, a.sampling.border);
    const auto* const pixels = reinterpret_cast<const char*>(plane + max_of(x, 0LL) * a.image.strides[3]);
    const int own_rows = x >= 0 ? corner.rows : 0;
#pragma unroll 1
    for (int first_down = share.down; first_down < corner.tile_rows; first_down += kAtOnce * share.step) {
      Element values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step, y = border.at(row + down);
        const bool exists = down < own_rows && border.has(y);
        const char* const from = pixels + static_cast<long long>(y) * row_bytes;
        values[i] = exists ? *reinterpret_cast<const Element*>(from) : convert<Element>(0.0f);
        if (!Pre{a.pre}.empty() && exists) {
          values[i] =
              convert<Element>(prepare_pixel<Pre>(a, convert<float>(values[i]), corner.batch, corner.channel, y, x));
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step;
        if (down < corner.tile_rows) to[down * pitch + across] = values[i];
      }
    }
  }
}

// Where an image's columns are adjacent: a word of the tile, from the two aligned words around it. These may hold
// elements of other rows, but not of other planes, where memory may end.
struct WordUnderTile {
  int shift;         // bytes that it begins after the lower one
  bool low, high;    // whether these two are loaded,
  bool is_gathered;  // unless some of its elements are in one that is not

  // `offset`: bytes from the plane's first element, `misalignment` of that; the word is at column x of a row.
  __device__ __forceinline__ WordUnderTile(bool exists, int offset, int misalignment, int x, int width,
                                           int plane_bytes) {
    shift = (offset + misalignment) & (kWordBytes - 1);
    const int first = offset - shift, column = x - shift / 2, most = plane_bytes - kWordBytes;
    const bool needs_low = exists && column > -kVectorOutputs;
    const bool needs_high = exists && shift > 0 && column + kVectorOutputs < width;
    low = needs_low && first >= 0 && first <= most;
    high = needs_high && first + kWordBytes >= 0 && first + kWordBytes <= most;
    is_gathered = low != needs_low || high != needs_high;
  }
};

// The same by words.
template <class Pre, class Element>
__device__ __forceinline__ void fetch_words(const ToeplitzArguments<Element>& a, const ToeplitzCorner& corner,
                                            std::uint32_t tile) {
  constexpr int kWidth = kWordElements<Element>, kAtOnce = 4, kSize = static_cast<int>(sizeof(Element));
  const char* const plane = a.image.template as<const char>() +
                            (corner.batch * a.image.strides[0] + corner.channel * a.image.strides[1]) * kSize;
  const int misalignment = static_cast<int>(reinterpret_cast<std::uintptr_t>(plane) & (kWordBytes - 1));
  const int row = static_cast<int>(corner.row), height = static_cast<int>(a.height), rows = corner.rows;
  const int row_bytes = static_cast<int>(a.image.strides[2]) * kSize, width = static_cast<int>(a.width);
  const int plane_bytes = (height - 1) * row_bytes + width * kSize;
  const ToeplitzShare share(a.pitch_words);
#pragma unroll 1
  for (int word = share.across; word < a.pitch_words; word += static_cast<int>(blockDim.x)) {
    const int x = static_cast<int>(corner.column) + word * kWidth;
    const int own_rows = x > -kWidth && x < width ? rows : 0;
    std::uint32_t mask[4];  // of the elements in columns 0 .. width - 1
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto has = [&](int column) { return static_cast<unsigned>(column) < static_cast<unsigned>(width); };
      mask[i] = (has(x + 2 * i) ? 0x0000ffffu : 0u) | (has(x + 2 * i + 1) ? 0xffff0000u : 0u);
    }
#pragma unroll 1
    for (int first_down = share.down; first_down < corner.tile_rows; first_down += kAtOnce * share.step) {
      Word low[kAtOnce], high[kAtOnce];
      const auto from_of = [&](int i) {
        const int down = first_down + i * share.step, y = row + down;
        const bool exists = down < own_rows && static_cast<unsigned>(y) < static_cast<unsigned>(height);
        return WordUnderTile(exists, y * row_bytes + x * kSize, misalignment, x, width, plane_bytes);
      };
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const WordUnderTile from = from_of(i);
        const char* const at = plane + ((row + first_down + i * share.step) * row_bytes + x * kSize - from.shift);
        low[i] = high[i] = Word{};
        if (from.low) low[i] = load_word(at);
        if (from.high) high[i] = load_word(at + kWordBytes);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int down = first_down + i * share.step, y = row + down;
        if (down >= corner.tile_rows) break;
        const WordUnderTile from = from_of(i);
        Word own = shifted(low[i], high[i], from.shift);
#pragma unroll
        for (int j = 0; j < 4; ++j) own.lanes[j] &= mask[j];
        if (from.is_gathered) own = gather_word(a, corner.batch, corner.channel, y, x);
        if (!Pre{a.pre}.empty() && down < own_rows) {
          own = apply_pre<Pre>(a, own, corner.batch, corner.channel, y, x);
        }
        store_shared_word(tile + (down * a.pitch_words + word) * kWordBytes, own);
      }
    }
  }
}

// Both copies of the kernel's rows of taps.
template <class Element>
__device__ __forceinline__ void fetch_kernel(const ToeplitzArguments<Element>& a, long long channel, char* taps) {
  const int elements = tap_copy_elements(a.steps), bytes = tap_copy_bytes(a.steps);
  const long long* const strides = a.kernel.strides;
  const Element* const kernel = a.kernel.template as<const Element>() + channel * strides[0];
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / 32; row < a.kernel_height; row += static_cast<int>(blockDim.x) / 32) {
    auto* const first = reinterpret_cast<Element*>(taps + row * 2 * bytes);
    auto* const second = reinterpret_cast<Element*>(taps + row * 2 * bytes + bytes);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < elements; i += 32) {
      const int column = i - kTapsFront;
      const bool is_tap = static_cast<unsigned>(column) < static_cast<unsigned>(a.kernel_width);
      const Element tap = is_tap ? kernel[row * strides[1] + column * strides[2]] : convert<Element>(0.0f);
      first[i] = tap;
      if (i + 1 < elements) second[i + 1] = tap;  // the last is zero, and memory may end after the copy
    }
  }
}

}  // namespace sluice
