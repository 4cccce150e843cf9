// Shared by filter2d's kernels: arguments, taps, words at the image's edges, `pre`.
#pragma once

#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/filter2d/policy.h"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"

namespace sluice {

template <class Element>
struct Filter2dArguments : Filter2dTensors, Filter2dTiles {
  using T = Compute<Element>;
  int tap_words;  // words of taps per row of the kernel
  int depth;
  Schedule schedule;
  long long tiles;
  FastDivisor by_channels, by_across, by_down, by_blocks;  // aligned: across counts strips; else tiles
  ChainArguments<T, 4> pre, post;

  __device__ T tap(long long channel, int i, int j) const {
    const long long* const strides = kernel.strides;
    return convert<T>(kernel.as<const Element>()[channel * strides[0] + i * strides[1] + j * strides[2]]);
  }
  __device__ T row_tap(long long channel, int j) const {
    return convert<T>(row_taps.as<const Element>()[channel * row_taps.strides[0] + j * row_taps.strides[1]]);
  }
  __device__ T bias_of(long long channel) const {
    return bias.exists() ? convert<T>(bias.as<const Element>()[channel * bias.strides[0]]) : T(0);
  }
  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output.dtype); }
  // The misalignment of the plane's output rows, in elements, if it is the same for all.
  template <int Width>
  __device__ int misalignment(long long batch_index, long long channel) const {
    if (!shifted) return 0;
    const long long element = batch_index * output.strides[0] + channel * output.strides[1];
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(output.data) / size_of(output_type()) + element) % Width);
  }
};

template <class Element>
inline constexpr int kPatchWords = filter2d_patch_words(kDType<Element>);
template <class Element>
inline constexpr int kPatchColumns = filter2d_columns(kDType<Element>);
template <class Element>
inline constexpr int kStripRows = aligned_rows(kDType<Element>);  // 3 x 3
template <class Element>
inline constexpr int kRowsAhead = aligned_rows_ahead(kDType<Element>);

// Loads a channel's taps into shared memory, by `threads` threads. Non-separable: [row of the kernel][tap words];
// separable: the row of taps in this layout, then the column. Padding after the last tap is never used.
template <class Element, class T>
__device__ __forceinline__ void load_taps(const Filter2dArguments<Element>& a, long long channel, T* taps, int thread,
                                          int threads) {
  const int pitch = a.tap_words * kWordElements<Element>;
  if (a.row_taps.exists()) {
    for (int j = thread; j < a.kernel_width; j += threads) taps[j] = a.row_tap(channel, j);
    for (int i = thread; i < a.kernel_height; i += threads) taps[pitch + i] = a.tap(channel, i, 0);
    return;
  }
  for (int t = thread; t < a.kernel_height * a.kernel_width; t += threads) {
    const int i = t / a.kernel_width, j = t - i * a.kernel_width;
    taps[i * pitch + j] = a.tap(channel, i, j);
  }
}

// The word of elements (row, column + i), zero outside the image, loaded one by one. For edges and for images whose
// columns are not contiguous; out of line because the fast path never comes here.
template <class Element>
__device__ __noinline__ Word gather_word(const Filter2dArguments<Element>& a, long long batch, long long channel,
                                         long long row, long long column) {
  const bool row_exists = row >= 0 && row < a.height;
  return gather_elements<Element>([&](int i) {
    const long long x = column + i;
    if (!row_exists || x < 0 || x >= a.width) return convert<Element>(typename Filter2dArguments<Element>::T(0));
    const long long* const strides = a.image.strides;
    return a.image
        .template as<const Element>()[batch * strides[0] + channel * strides[1] + row * strides[2] + x * strides[3]];
  });
}

// A kernel's two chains. The squares' own kernels have no `pre`, and only numbers in `post`.
template <class Element>
struct ElementwiseFilter2dChains {
  using Pre = ElementwiseChain<Compute<Element>, 4>;
  using Post = ElementwiseChain<Compute<Element>, 4>;
};
template <class Element>
struct LinkedFilter2dChains {
  using Pre = LinkedChain<Compute<Element>, 4, ChainSite::pre>;
  using Post = LinkedChain<Compute<Element>, 4, ChainSite::post>;
};

// `pre` on this word, rounded to the image's type as transform would. Zeros of the padding stay zero.
template <class Pre, class Element>
__device__ __noinline__ Word apply_pre(const Filter2dArguments<Element>& a, Word word, long long batch,
                                       long long channel, long long row, long long column) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  if (row < 0 || row >= a.height || column >= a.width || column + kWidth <= 0) return word;
  const int first = column < 0 ? static_cast<int>(-column) : 0;
  const int last = a.width - column < kWidth ? static_cast<int>(a.width - column) : kWidth;
  T values[kWidth];
  unpack<Element>(word, values);
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + channel * strides[1] + row * strides[2] + column * strides[3];
    return Place{.offset = offset, .stride = strides[3], .first = first, .last = last};
  };
  run_chain<Pre, kWidth, 1>(a.pre, place_of, values);
  return replace_elements<Element>(word, pack<Element>(values), [&](int i) { return first <= i && i < last; });
}

template <class Element>
void fill(Filter2dArguments<Element>& a, const Filter2dParams& params, const Filter2dPlan& plan) {
  static_cast<Filter2dTensors&>(a) = params;
  static_cast<Filter2dTiles&>(a) = plan;
  a.tap_words = filter2d_tap_words(params.kernel_width, params.image.dtype);
  a.depth = plan.depth;
  a.schedule = plan.schedule;
  a.tiles = params.batch * params.channels * plan.tiles_across * plan.tiles_down;
  a.by_channels = FastDivisor(params.channels);
  a.by_across = FastDivisor(is_of(plan.which, Filter2dFamily::strips) ? plan.strips_across : plan.tiles_across);
  a.by_down = FastDivisor(plan.tiles_down);
  a.by_blocks = FastDivisor(plan.blocks_per_plane);
  const long long image[4] = {params.batch, params.channels, params.height, params.width};
  const long long output[4] = {params.batch, params.channels, params.output_height, params.output_width};
  a.pre = make_chain_arguments<Compute<Element>, 4>(params.pre, params.pre_operands, 4, image);
  a.post = make_chain_arguments<Compute<Element>, 4>(params.post, params.post_operands, 4, output);
}

}  // namespace sluice
