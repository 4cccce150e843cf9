// filter2d without a ring. A block computes one tile of one plane: `lanes` threads across, the others below them, each
// with a patch of some words by some rows. Threads read their windows from memory; overlaps of neighbours hit the L1
// cache.
//
//                <-- 16 lanes -->
//              | p0 p1 p2 ... p15 |   each p: 8 outputs by 4 rows (separable: 8 rows)
//              | p16 ...          |
//              | ...         p127 |   128 outputs by 32 rows
//
//   window of p     ..oooooooo..      kernel_width - 1 columns and kernel_height - 1 rows more than p
#pragma once

#include "kernels/operators/filter2d/patch.cuh"

namespace sluice {

// The window of a patch at (row, column) of a plane of the image, without copies. Pre is void where there is none.
template <class Element, class Pre>
struct ImageWindow {
  const Filter2dArguments<Element>& a;
  long long batch, channel, top_row, column;
  const char* corner;  // corner of the window; not read outside the image
  bool interior;       // every word of the window is inside the image, for the whole warp

  __device__ ImageWindow(const Filter2dArguments<Element>& arguments, const Patch& patch, int rows)
      : a(arguments),
        batch(patch.batch),
        channel(patch.channel),
        top_row(patch.row - a.top),
        column(patch.column - a.left) {
    constexpr int kWidth = kWordElements<Element>;
    corner = a.image.template as<const char>() + (batch * a.image.strides[0] + channel * a.image.strides[1] +
                                                  top_row * a.image.strides[2] + column * a.image.strides[3]) *
                                                     static_cast<long long>(sizeof(Element));
    // Words start up to one element less than their width before the window.
    const bool inside = a.image.strides[3] == 1 && top_row >= 0 && top_row + rows + a.kernel_height - 1 <= a.height &&
                        column >= kWidth - 1 && column + (kPatchWords<Element> + a.tap_words + 1) * kWidth <= a.width;
    // By warps: a warp that took both branches would take the time of both.
    interior = __all_sync(0xffffffffu, inside || patch.empty());
  }

  struct Row {
    const ImageWindow& window;
    const char* first;  // its first word; with columns apart, its first element
    int shift;          // bytes of that word before the window
    long long row, column;

    __device__ Word prepared(const Word& word, long long at) const {
      if constexpr (std::is_void_v<Pre>) {
        return word;
      } else {
        const auto& w = window;
        return Pre{w.a.pre}.empty() ? word : apply_pre<Pre>(w.a, word, w.batch, w.channel, row, at);
      }
    }
    __device__ Word checked(int index, long long at) const {
      const auto& a = window.a;
      if (row < 0 || row >= a.height || at >= a.width || at + kWordElements<Element> <= 0) return Word{};
      const bool whole = a.image.strides[3] == 1 && at >= 0 && at + kWordElements<Element> <= a.width;
      return prepared(
          whole ? load_word(first + index * kWordBytes) : gather_word(a, window.batch, window.channel, row, at), at);
    }
    __device__ Word word(int index) const {
      const long long at = column + index * kWordElements<Element>;
      return window.interior ? prepared(inner_word(index), at) : checked(index, at);
    }
    // Only where the window is interior.
    __device__ Word inner_word(int index) const { return load_word(first + index * kWordBytes); }
  };

  __device__ Row row(int i) const {
    const char* const at = corner + i * a.image.strides[2] * static_cast<long long>(sizeof(Element));
    const int shift =
        a.image.strides[3] == 1 ? static_cast<int>(reinterpret_cast<std::uintptr_t>(at) & (kWordBytes - 1)) : 0;
    return {*this, at - shift, shift, top_row + i, column - shift / static_cast<int>(sizeof(Element))};
  }
};

// Any kernel, separable or not.
template <class Chains, bool Separable, class Element>
__device__ __forceinline__ void patches_filter2d(const Filter2dArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kRows = Separable ? kSeparableRows : kPatchRows;
  extern __shared__ Word shared[];
  T* const taps = reinterpret_cast<T*>(shared);
  const Filter2dTile tile = tile_at<kRows>(a, blockIdx.x);
  load_taps(a, tile.channel, taps, threadIdx.x, kFilter2dThreads);
  __syncthreads();
  const Patch patch = patch_at<kRows>(a, tile);
  const ImageWindow<Element, typename Chains::Pre> window(a, patch, kRows);
  if (patch.empty()) return;
  T sums[kRows * kPatchColumns<Element>];
  start_sums(a, patch.channel, sums);
  if constexpr (Separable) {
    add_separable<kRows>(a, window, taps, sums);
  } else {
    add_full_taps<kRows>(a, window, SharedTaps<Element, T>{taps, a.tap_words * kWordElements<Element>}, sums);
  }
  finish_patch<typename Chains::Post, kRows>(a, patch, sums);
}

// Side x Side, without `pre`; interpreted: without tensors in `post` too.
template <class Chains, int Side, class Element>
__device__ __forceinline__ void square_filter2d(const Filter2dArguments<Element>& a) {
  using T = Compute<Element>;
  const Filter2dTile tile = tile_at<kPatchRows>(a, blockIdx.x);
  const Patch patch = patch_at<kPatchRows>(a, tile);
  const ImageWindow<Element, void> window(a, patch, kPatchRows);
  if (patch.empty()) return;
  T sums[kPatchRows * kPatchColumns<Element>];
  start_sums(a, patch.channel, sums);
  if (window.interior) {
    // Taps straight from memory, while the image loads: a barrier would make one wait for the other.
    T taps[Side * Side];
#pragma unroll
    for (int t = 0; t < Side * Side; ++t) taps[t] = a.tap(patch.channel, t / Side, t % Side);
    add_square<Side, kPatchRows, Element>(window, taps, sums);
  } else {
    add_full_taps<kPatchRows>(a, window, MemoryTaps<Element>{a, patch.channel}, sums);
  }
  finish_patch<typename Chains::Post, kPatchRows>(a, patch, sums);
}

template <class Element, bool Separable>
__global__ void __launch_bounds__(kFilter2dThreads, Separable ? kSeparableBlocks : kFilter2dResidentBlocks)
    patches_filter2d_kernel(const __grid_constant__ Filter2dArguments<Element> a) {
  patches_filter2d<ElementwiseFilter2dChains<Element>, Separable>(a);
}

template <class Element, int Side>
__global__ void __launch_bounds__(kFilter2dThreads, kFilter2dResidentBlocks)
    square_filter2d_kernel(const __grid_constant__ Filter2dArguments<Element> a) {
  square_filter2d<ElementwiseFilter2dChains<Element>, Side>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::square3, Element> {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams&) { return square_filter2d_kernel<Element, 3>; }
};
template <class Element>
struct Interpreted<Filter2dKernel::square5, Element> {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams&) { return square_filter2d_kernel<Element, 5>; }
};
template <class Element>
struct Interpreted<Filter2dKernel::patches, Element> {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams&) {
    return patches_filter2d_kernel<Element, false>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::separable, Element> {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams&) { return patches_filter2d_kernel<Element, true>; }
};

}  // namespace sluice
