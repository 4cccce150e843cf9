// filter2d pixel by pixel: any stride, any dilation, any border, any layout, images of bytes. A thread has some rows of
// one column of the result; threads across have adjacent columns.
//
//    lane       0 1 2 3 ...         a tap of the kernel is one pixel for each of a thread's rows; a warp whose windows
//    row 0      o o o o             are inside the image skips the border's checks
//        1      o o o o
//        ...                        kSampledRows
//
// Sums are in the other kernels' order (patch.cuh), so results have the same bits.
#pragma once

#include "kernels/operators/filter2d/patch.cuh"

namespace sluice {

// Arguments of kernels that sample the image. Image: the type of its elements, Element or uint8.
template <class Element>
struct SamplingArguments : Filter2dArguments<Element> {
  Filter2dSampling sampling;
  Filter2dInterior interior;
  int strip_blocks;  // blocks of a plane that have strips; its other blocks have the frame
};

template <class Element>
void fill(SamplingArguments<Element>& a, const Filter2dParams& params, const Filter2dPlan& plan) {
  fill(static_cast<Filter2dArguments<Element>&>(a), params, plan);
  a.sampling = params.sampling;
  a.interior = problem_of(params).interior;
  a.strip_blocks = plan.strip_blocks;
  if (is_of(plan.which, Filter2dFamily::unaligned_strips)) a.by_across = FastDivisor(plan.warps_across);
}

// Whether a call has neither a chain nor a result of another dtype.
inline bool is_plain(const Filter2dParams& params) {
  return params.pre.empty() && params.post.empty() && params.output.dtype == params.image.dtype;
}

template <class Image, class T>
__device__ __forceinline__ T pixel_value(Image pixel) {
  if constexpr (std::is_same_v<Image, std::uint8_t>) {
    return static_cast<T>(pixel);
  } else {
    return convert<T>(pixel);
  }
}

// `pre` on one pixel, rounded to the image's type as transform would.
template <class Pre, class Element, class T>
__device__ __noinline__ T prepare_pixel(const Filter2dArguments<Element>& a, T value, long long batch,
                                        long long channel, long long row, long long column) {
  constexpr int kWidth = kWordElements<Element>;  // the width that the linker is told
  T values[kWidth] = {value};
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + channel * strides[1] + row * strides[2] + column * strides[3];
    return Place{.offset = offset, .stride = strides[3], .first = 0, .last = 1};
  };
  run_chain<Pre, kWidth, 1>(a.pre, place_of, values);
  return convert<T>(convert<Element>(values[0]));
}

// The sums of results (row + r, column), r < Rows, of a channel. Rows after the result's last are summed from zeros.
template <class Pre, int Rows, class Image, class Element, class Tap, class RowTap>
__device__ __forceinline__ void sample_sums(const SamplingArguments<Element>& a, long long batch, long long channel,
                                            long long row, long long column, bool exists, const Tap& tap,
                                            const RowTap& row_tap, Compute<Element> (&sums)[Rows]) {
  using T = Compute<Element>;
  const Filter2dSampling& w = a.sampling;
  const long long* const strides = a.image.strides;
  const Image* const plane = a.image.template as<const Image>() + batch * strides[0] + channel * strides[1];
  const long long first_row = row * w.stride_down - a.top, first_column = column * w.stride_across - a.left;
  const long long reach = static_cast<long long>(w.dilation_across) * (a.kernel_width - 1);
  const long long depth = static_cast<long long>(w.dilation_down) * (a.kernel_height - 1);
  const bool inside = first_column >= 0 && first_column + reach < a.width && first_row >= 0 &&
                      first_row + static_cast<long long>(Rows - 1) * w.stride_down + depth < a.height;
  // By warps: a warp that took both branches would take the time of both.
  const bool interior = __all_sync(0xffffffffu, inside || !exists);
  if (!exists) return;
  const bool separable = a.row_taps.exists();
#pragma unroll 1
  for (int i = 0; i < a.kernel_height; ++i) {
    long long rows[Rows];  // rows of the image; negative: a row of zeros
    const Image* lines[Rows];
    T across[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const long long at =
          first_row + static_cast<long long>(r) * w.stride_down + static_cast<long long>(i) * w.dilation_down;
      rows[r] = interior ? at : pixel_at(at, a.height, w.border);
      lines[r] = plane + rows[r] * strides[2];
      across[r] = separable ? T(0) : sums[r];
    }
    const auto add_tap = [&](int j, long long x, bool is_there) {
      const T weight = separable ? row_tap(j) : tap(i, j);
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        T value = T(0);
        if (is_there && (interior || rows[r] >= 0)) {
          value = pixel_value<Image, T>(lines[r][x * strides[3]]);
          if (!Pre{a.pre}.empty()) value = prepare_pixel<Pre>(a, value, batch, channel, rows[r], x);
        }
        across[r] = multiply_add(weight, value, across[r]);
      }
    };
    if (interior) {
#pragma unroll 1
      for (int j = 0; j < a.kernel_width; ++j) {
        add_tap(j, first_column + static_cast<long long>(j) * w.dilation_across, true);
      }
    } else {
#pragma unroll 1
      for (int j = 0; j < a.kernel_width; ++j) {
        const long long x = pixel_at(first_column + static_cast<long long>(j) * w.dilation_across, a.width, w.border);
        add_tap(j, x, x >= 0);
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) sums[r] = separable ? multiply_add(tap(i, 0), across[r], sums[r]) : across[r];
  }
}

template <class Chains, class Image, class Element>
__device__ __forceinline__ void sampled_filter2d(const SamplingArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kRows = kSampledRows;
  extern __shared__ Word shared[];
  T* const taps = reinterpret_cast<T*>(shared);
  const long long upper = a.by_across.quotient(blockIdx.x), plane = a.by_down.quotient(upper);
  const long long batch = a.by_channels.quotient(plane), channel = plane - batch * a.channels;
  load_taps(a, channel, taps, threadIdx.x, kFilter2dThreads);
  __syncthreads();
  const int below = threadIdx.x / a.lanes, lane = threadIdx.x - below * a.lanes;
  const long long row = ((upper - plane * a.by_down.divisor) * (kFilter2dThreads / a.lanes) + below) * kRows;
  const long long column = (blockIdx.x - upper * a.by_across.divisor) * a.lanes + lane;
  const bool exists = row < a.output_height && column < a.output_width;
  const int pitch = a.tap_words * kWordElements<Element>;
  T sums[kRows];
  start_sums(a, channel, sums);
  sample_sums<typename Chains::Pre, kRows, Image>(
      a, batch, channel, row, column, exists,
      [&](int i, int j) { return a.row_taps.exists() ? taps[pitch + i] : taps[i * pitch + j]; },
      [&](int j) { return taps[j]; }, sums);
  if (!exists) return;
  // The column as a vector of the result, whose elements are a row apart.
  const auto place_of = [&](const long long* strides, int) {
    return Place{
        .offset = batch * strides[0] + channel * strides[1] + row * strides[2] + column * strides[3],
        .stride = strides[2],
        .first = 0,
        .last = static_cast<int>(min_of<long long>(kRows, a.output_height - row)),
    };
  };
  finish_slices<typename Chains::Post, kRows, 1>(a.post, a.output, a.output_type(), place_of, sums);
}

template <class Element, class Image>
__global__ void __launch_bounds__(kFilter2dThreads, kFilter2dResidentBlocks)
    sampled_filter2d_kernel(const __grid_constant__ SamplingArguments<Element> a) {
  sampled_filter2d<ElementwiseFilter2dChains<Element>, Image>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::sampled, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return sampled_filter2d_kernel<Element, Element>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_sampled, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return sampled_filter2d_kernel<Element, std::uint8_t>;
  }
};

}  // namespace sluice
