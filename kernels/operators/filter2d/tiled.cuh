// filter2d's `direct` kernels for filters with many taps, separable or not, on images of any layout, with any border
// and of bytes. A block copies the image under its tile to shared memory, as numbers of the type that is computed in,
// and a thread sums a patch of eight columns:
//
//   not separable   an image row at a time: each of its words meets the taps of all rows of the patch
//   separable       each row of the tile is filtered across, in place; then each patch is filtered down
//
// A row of the tile has its even words first, then its odd words, so that lanes, eight columns apart, read words that
// are adjacent:
//
//   words of a row   0 2 4 6 ... | 1 3 5 7 ... |       `half` words each, and one that is not used
//
// Sums are in the other kernels' order (patch.cuh), so results have the same bits.
#pragma once

#include "kernels/operators/filter2d/tile_fetch.cuh"

namespace sluice {

static_assert(kTiledColumns == 2 * kTapsAtOnce);

// The words of a row of the tile, from a lane's patch on: number 2 i is even[i], number 2 i + 1 odd[i].
struct TiledRow {
  const Word *even, *odd;

  __device__ __forceinline__ TiledRow(const Word* words, int half) : even(words), odd(words + half) {}
  __device__ __forceinline__ void move_on(int words) { even += words, odd += words; }
};

__device__ __forceinline__ void read_floats(const void* from, float* values) {
  const Word word = *static_cast<const Word*>(from);
  __builtin_memcpy(values, &word, sizeof(word));
}

// The patch's columns that meet tap 0 of a row.
__device__ __forceinline__ void read_patch(const TiledRow& row, float* values) {
  read_floats(row.even, values);
  read_floats(row.odd, values + kTapsAtOnce);
}

// `body(j, values, whole)` for every kTapsAtOnce taps of a row: tap j + k meets values[k], values[k + 1], ...; the last
// may be fewer. By pairs, which are at the same place of the even and of the odd words.
template <int Rows, class Body>
__device__ __forceinline__ void for_each_taps(const TiledRow (&rows)[Rows], int taps, const Body& body) {
  float values[Rows][kTiledColumns + kTapsAtOnce];
#pragma unroll
  for (int r = 0; r < Rows; ++r) read_patch(rows[r], values[r]);
  const auto step = [&](int j, const auto& next, auto whole) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) read_floats(next(rows[r]), values[r] + kTiledColumns);
    body(j, values, whole);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
#pragma unroll
      for (int i = 0; i < kTiledColumns; ++i) values[r][i] = values[r][i + kTapsAtOnce];
    }
  };
  int j = 0, pair = 1;
  const auto even = [&](const TiledRow& row) { return row.even + pair; };
  const auto odd = [&](const TiledRow& row) { return row.odd + pair; };
#pragma unroll 1
  for (; j + 2 * kTapsAtOnce <= taps; j += 2 * kTapsAtOnce, ++pair) {
    step(j, even, std::true_type{});
    step(j + kTapsAtOnce, odd, std::true_type{});
  }
  const bool has_whole = j + kTapsAtOnce <= taps;
  if (has_whole) {
    step(j, even, std::true_type{});
    j += kTapsAtOnce;
  }
  if (j < taps) step(j, [&](const TiledRow& row) { return has_whole ? odd(row) : even(row); }, std::false_type{});
}

// Adds the products of one image row to rows First .. Last - 1 of the patch. `taps`: the row of taps that meets row 0.
template <int First, int Last>
__device__ __forceinline__ void add_image_row(const TiledRow& row, const float* taps, int pitch, int width,
                                              float* sums) {
  const TiledRow rows[1] = {row};
  for_each_taps(rows, width, [&](int j, const auto& values, auto whole) {
    if constexpr (decltype(whole)::value) {
#pragma unroll
      for (int r = First; r < Last; ++r) {
        float several[kTapsAtOnce];
        read_floats(taps - r * pitch + j, several);
#pragma unroll
        for (int k = 0; k < kTapsAtOnce; ++k) {
          add_products<kTiledColumns>(several[k], values[0] + k, sums + r * kTiledColumns);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < kTapsAtOnce - 1; ++k) {
        if (j + k >= width) break;  // not a product with zero: the window may hold infinities
#pragma unroll
        for (int r = First; r < Last; ++r) {
          add_products<kTiledColumns>(taps[j + k - r * pitch], values[0] + k, sums + r * kTiledColumns);
        }
      }
    }
  });
}

// A kernel of at least kPatchRows - 1 rows: the first and the last rows of the window meet fewer rows of the patch.
template <class Element>
__device__ __forceinline__ void add_tiled_taps(const Filter2dArguments<Element>& a, TiledRow row, const float* taps,
                                               float* sums) {
  static_assert(kPatchRows == 4);
  const int pitch = a.tap_words * kWordElements<Element>, width = a.kernel_width;
  const auto next = [&] {
    row.move_on(a.pitch_words);
    taps += pitch;
  };
  add_image_row<0, 1>(row, taps, pitch, width, sums), next();
  add_image_row<0, 2>(row, taps, pitch, width, sums), next();
  add_image_row<0, 3>(row, taps, pitch, width, sums), next();
#pragma unroll 1
  for (int i = kPatchRows - 1; i < a.kernel_height; ++i) add_image_row<0, 4>(row, taps, pitch, width, sums), next();
  add_image_row<1, 4>(row, taps, pitch, width, sums), next();
  add_image_row<2, 4>(row, taps, pitch, width, sums), next();
  add_image_row<3, 4>(row, taps, pitch, width, sums);
}

// Filters all `rows` of the tile across, in place: a warp has whole rows, two of them at once.
template <class Element>
__device__ __forceinline__ void filter_across(const Filter2dArguments<Element>& a, Word* tile, int rows,
                                              const float* taps) {
  constexpr int kRows = 2;
  const int half = a.pitch_words / 2, width = a.kernel_width;
  const int of_warp = static_cast<int>(threadIdx.x) % 32, down = of_warp / a.lanes, lane = of_warp - down * a.lanes;
  const int at_once = 32 / a.lanes, step = static_cast<int>(blockDim.x) / 32 * kRows * at_once;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / 32 * kRows * at_once; first < rows; first += step) {
    const auto words_of = [&](int r) {
      const int row = first + r * at_once + down;  // beyond the last: one of this warp, for nothing
      return tile + (row < rows ? row : first) * a.pitch_words + lane;
    };
    const TiledRow from[kRows] = {{words_of(0), half}, {words_of(1), half}};
    float across[kRows][kTiledColumns] = {};
    for_each_taps(from, width, [&](int j, const auto& values, auto whole) {
      float several[kTapsAtOnce];
      read_floats(taps + j, several);
#pragma unroll
      for (int k = 0; k < kTapsAtOnce; ++k) {
        if (!decltype(whole)::value && j + k >= width) break;
#pragma unroll
        for (int r = 0; r < kRows; ++r) add_products<kTiledColumns>(several[k], values[r] + k, across[r]);
      }
    });
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = first + r * at_once + down;
      if (row >= rows) continue;
      Word* const to = tile + row * a.pitch_words + lane;
      __builtin_memcpy(to, across[r], kWordBytes);
      __builtin_memcpy(to + half, across[r] + kTapsAtOnce, kWordBytes);
    }
    __syncwarp();
  }
}

// Adds the column of taps times the rows below a patch's first, which are filtered across.
template <int Rows>
__device__ __forceinline__ void filter_down(TiledRow row, int pitch_words, const float* column, int height,
                                            float* sums) {
  float taps[Rows] = {};  // number i % Rows is tap i
#pragma unroll 1
  for (int first = 0; first < Rows + height - 1; first += Rows) {
#pragma unroll
    for (int s = 0; s < Rows; ++s) {
      const int i = first + s;
      if (i >= Rows + height - 1) break;
      float values[kTiledColumns];
      read_patch(row, values);
      if (i < height) taps[s] = column[i];
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        if (static_cast<unsigned>(i - r) >= static_cast<unsigned>(height)) continue;
        add_products<kTiledColumns>(taps[(s - r + Rows) % Rows], values, sums + r * kTiledColumns);
      }
      row.move_on(pitch_words);
    }
  }
}

// Copies the image under the tile; ByWords where it can: words of float32 were slower in kernels that are not
// separable.
template <class Pre, class Image, bool ByWords, class Element>
__device__ __forceinline__ void fetch_pixels(const SamplingArguments<Element>& a, const TileCorner& corner,
                                             Word* tile) {
  constexpr int kWidth = kWordElements<Element>, kOwnWords = kWidth / kTapsAtOnce;  // floats of an element's word
  const int half = a.pitch_words / 2, columns = 2 * half * kTapsAtOnce;
  const auto place = [&](int down, int word) { return down * a.pitch_words + (word & 1) * half + (word >> 1); };
  if constexpr (ByWords && std::is_same_v<Image, Element>) {
    if (has_words(a, corner, columns)) {
      fetch_words<Pre>(a, corner, columns / kWidth, [&](int down, int word, const Word& pixels) {
        float values[kWidth];
        unpack<Element>(pixels, values);
#pragma unroll
        for (int w = 0; w < kOwnWords; ++w) {
          __builtin_memcpy(tile + place(down, word * kOwnWords + w), values + w * kTapsAtOnce, kWordBytes);
        }
      });
      return;
    }
  }
  auto* const pixels = reinterpret_cast<float*>(tile);
  fetch_elements<Pre, Image, float>(a, corner, columns, [&](int down, int across, float value) {
    pixels[place(down, across / kTapsAtOnce) * kTapsAtOnce + across % kTapsAtOnce] = value;
  });
}

template <class Chains, class Image, bool Separable, class Element>
__device__ __forceinline__ void tiled_filter2d(const SamplingArguments<Element>& a) {
  constexpr int kRows = Separable ? kSeparableRows : kPatchRows;
  static_assert(kTiledColumns == kPatchColumns<Element>);
  extern __shared__ Word shared[];
  auto* const taps = reinterpret_cast<float*>(shared + a.stage_words);
  const int tile_rows = a.groups_down * kRows, half = a.pitch_words / 2;
  Filter2dTile tile = tile_of_block(a, tile_rows, a.lanes * kTiledColumns);
  tile.column -= a.template misalignment<kWordElements<Element>>(tile.batch, tile.channel);
  const int rows = static_cast<int>(min_of<long long>(tile_rows, a.output_height - tile.row)) + a.kernel_height - 1;
  load_taps(a, tile.channel, taps, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  const TileCorner corner{tile.batch, tile.channel, tile.row - a.top, tile.column - a.left, rows, rows};
  fetch_pixels<typename Chains::Pre, Image, Separable || sizeof(Element) == 2>(a, corner, shared);
  __syncthreads();
  if constexpr (Separable) {
    filter_across(a, shared, rows, taps);
    __syncthreads();
  }
  const int below = static_cast<int>(threadIdx.x) / a.lanes, lane = static_cast<int>(threadIdx.x) - below * a.lanes;
  if (below >= a.groups_down) return;
  const Patch patch = patch_at<kRows>(a, tile);
  if (patch.empty()) return;
  const TiledRow row(shared + below * kRows * a.pitch_words + lane, half);
  float sums[kRows * kTiledColumns];
  start_sums(a, patch.channel, sums);
  if constexpr (Separable) {
    const float* const column = taps + a.tap_words * kWordElements<Element>;
    filter_down<kRows>(row, a.pitch_words, column, a.kernel_height, sums);
  } else {
    add_tiled_taps(a, row, taps, sums);
  }
  finish_patch<typename Chains::Post, kRows>(a, patch, sums);
}

template <class Element, class Image, bool Separable>
__global__ void __launch_bounds__(kTiledThreads, tiled_blocks(Separable))
    tiled_filter2d_kernel(const __grid_constant__ SamplingArguments<Element> a) {
  tiled_filter2d<ElementwiseFilter2dChains<Element>, Image, Separable>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::tiled, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return tiled_filter2d_kernel<Element, Element, false>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::tiled_separable, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return tiled_filter2d_kernel<Element, Element, true>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_tiled, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return tiled_filter2d_kernel<Element, std::uint8_t, false>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_tiled_separable, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return tiled_filter2d_kernel<Element, std::uint8_t, true>;
  }
};

}  // namespace sluice
