// filter2d's `direct` kernels for squares of 3 to 9 on images of any layout: channels-last, narrow, at any alignment,
// with any border and on images of bytes. Adjacent threads have elements that are adjacent in memory, whatever these
// are: columns, or channels of columns. A thread marches down its column, as in aligned.cuh.
//
// The positions of a row, with the border around it, are numbered on through all rows of the same index in their
// planes, so that few threads idle at any width. `interleaved` channels of a channels-last image are one such row:
//
//   positions of 3 planes, side 3   b o o o o b b o o o o b b o o o o b      b: border, o: image
//   results                         o o o o . . o o o o . . o o o o . .      at the position of the window's first tap
//   the same, 2 channels            A B A B A B A B A B A B                  tap k is 2 k positions further
//
// A block copies some image rows of its positions, and of positions that the last windows reach, to shared memory as
// floats. The next rows are in flight, in registers, while these are summed:
//
//   registers --convert, `pre`--> shared memory --Side taps a row--> sums of Side results --> chain --> column
//
// Sums are in the other kernels' order (patch.cuh), so results have the same bits.
#pragma once

#include "kernels/operators/filter2d/aligned.cuh"
#include "kernels/operators/filter2d/sampled.cuh"

namespace sluice {

template <class Element>
struct ColumnArguments : SamplingArguments<Element> {
  FastDivisor by_positions, by_interleaved, by_groups, by_blocks;
};

template <class Element>
void fill(ColumnArguments<Element>& a, const Filter2dParams& params, const Filter2dPlan& plan) {
  fill(static_cast<SamplingArguments<Element>&>(a), params, plan);
  a.by_positions = FastDivisor(plan.positions);
  a.by_interleaved = FastDivisor(plan.interleaved);
  a.by_groups = FastDivisor(plan.groups);
  a.by_blocks = FastDivisor(plan.grid / plan.strips_down);
}

// A position of a padded row: its column with the border before the image, and whether its channel exists.
struct PaddedColumn {
  std::uint32_t batch, channel;
  int column;
  bool exists;
};

template <class Element>
__device__ __forceinline__ PaddedColumn padded_column(const ColumnArguments<Element>& a, std::uint32_t position) {
  const auto split = [](const FastDivisor& divisor, std::uint32_t& index) {
    const std::uint32_t quotient = divisor.quotient_of_31_bits(index);
    index -= quotient * static_cast<std::uint32_t>(divisor.divisor);
    return quotient;
  };
  const std::uint32_t row = split(a.by_positions, position), column = split(a.by_interleaved, position);
  std::uint32_t group = row;
  const std::uint32_t batch = split(a.by_groups, group);
  const std::uint32_t channel = group * static_cast<std::uint32_t>(a.interleaved) + position;
  return {batch, channel, static_cast<int>(column), batch < a.batch && channel < a.channels};
}

// The pixels of a position, down the image.
template <class Image, class Element>
struct PixelColumn {
  using Bits = std::conditional_t<sizeof(Image) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(Image) == 2, std::uint16_t, std::uint32_t>>;
  const ColumnArguments<Element>& a;
  PaddedColumn at;
  long long x;     // column of the image
  bool is_inside;  // the column is in the image; else its pixels are zeros
  int row_bytes;
  const char* pixels;

  __device__ __forceinline__ PixelColumn(const ColumnArguments<Element>& arguments, std::uint32_t position)
      : a(arguments), at(padded_column(arguments, position)) {
    x = pixel_at(at.column - a.left, a.width, a.sampling.border);
    is_inside = at.exists && x >= 0;
    const long long* const strides = a.image.strides;
    const long long offset = at.batch * strides[0] + at.channel * strides[1] + x * strides[3];
    pixels = a.image.template as<const char>() + (is_inside ? offset : 0) * static_cast<long long>(sizeof(Image));
    row_bytes = static_cast<int>(strides[2]) * static_cast<int>(sizeof(Image));
  }
  // A pixel's bits in a row of the image, if the row `exists`.
  __device__ __forceinline__ Bits load(bool exists, int y) const {
    return exists ? __ldg(reinterpret_cast<const Bits*>(pixels + static_cast<long long>(y) * row_bytes)) : Bits(0);
  }
  // `y`: that row, or none of the image.
  template <class Pre>
  __device__ __forceinline__ Compute<Element> value(Bits bits, const BorderRows& border, int y) const {
    using T = Compute<Element>;
    Image pixel;
    __builtin_memcpy(&pixel, &bits, sizeof(pixel));
    const T value = pixel_value<Image, T>(pixel);
    if (Pre{a.pre}.empty() || !is_inside || !border.has(y)) return value;
    return prepare_pixel<Pre>(a, value, at.batch, at.channel, y, x);
  }
};

template <class Chains, class Image, int Side, class Element>
__device__ __forceinline__ void columns_filter2d(const ColumnArguments<Element>& a) {
  using T = Compute<Element>;
  using Pixels = PixelColumn<Image, Element>;
  constexpr int kThreads = column_threads(Side), kRows = column_rows(Side), kLast = Side - 1;
  extern __shared__ Word shared[];
  const int interleaved = a.interleaved, reach = kLast * interleaved, pitch = kThreads + reach;
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t strip = a.by_blocks.quotient_of_31_bits(blockIdx.x);
  const std::uint32_t first_position =
      (blockIdx.x - strip * static_cast<std::uint32_t>(a.by_blocks.divisor)) * kThreads + threadIdx.x;
  const int row = static_cast<int>(strip) * a.strip_rows;
  const int rows = min_of(a.strip_rows, static_cast<int>(a.output_height) - row), inputs = rows + kLast;
  const int top = row - static_cast<int>(a.top);
  const BorderRows border(a.height, a.sampling.border);

  // A thread's own position, and one that the block's last windows reach.
  const Pixels own(a, first_position), further(a, first_position + kThreads);
  const bool has_further = thread < reach;
  typename Pixels::Bits own_bits[kRows], further_bits[kRows];
  const auto load_rows = [&](const Pixels& pixels, int from, typename Pixels::Bits(&bits)[kRows]) {
    const int own_inputs = pixels.is_inside ? inputs : 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int y = border.at(top + from + i);
      bits[i] = pixels.load(from + i < own_inputs && border.has(y), y);
    }
  };
  const auto load = [&](int from) {
    load_rows(own, from, own_bits);
    if (has_further) load_rows(further, from, further_bits);
  };
  load(0);

  const bool is_result = own.at.exists && own.at.column < a.output_width;
  T taps[Side * Side];
  const std::uint32_t channel = is_result ? own.at.channel : 0;
  load_square<Side>(a, channel, taps);
  MarchingSums<Side, 1, T> march(taps, a.bias_of(channel));
  // The place in the result's row that is kLast rows above the strip's first row.
  const int output_bytes = static_cast<int>(a.output.strides[2]) * static_cast<int>(sizeof(Element));
  char* to = a.output.template as<char>() +
             (own.at.batch * a.output.strides[0] + own.at.channel * a.output.strides[1] +
              own.at.column * a.output.strides[3]) *
                 static_cast<long long>(sizeof(Element)) +
             static_cast<long long>(row - kLast) * output_bytes;
  const int valid_rows = is_result ? rows : 0;
  T* lines = reinterpret_cast<T*>(shared);
  T* other_lines = lines + kRows * pitch;
#pragma unroll 1
  for (int from = 0; from < inputs; from += kRows) {
    const auto put = [&](const Pixels& pixels, const typename Pixels::Bits(&bits)[kRows], int at) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        lines[i * pitch + at] = pixels.template value<typename Chains::Pre>(bits[i], border, border.at(top + from + i));
      }
    };
    put(own, own_bits, thread);
    if (has_further) put(further, further_bits, kThreads + thread);
    __syncthreads();  // the other lines are no longer read either
    load(from + kRows);
#pragma unroll
    for (int i = 0; i < kRows; i += kSampledRows) {
      T results[kSampledRows];
#pragma unroll
      for (int r = 0; r < kSampledRows; ++r) {
#pragma unroll
        for (int k = 0; k < Side; ++k) march.values[k] = lines[(i + r) * pitch + thread + k * interleaved];
        march.complete(results + r);
        march.move_on();
      }
      const int result_row = from + i - kLast;  // row of the strip
      if constexpr (std::is_same_v<typename Chains::Post, NoChain>) {
#pragma unroll
        for (int r = 0; r < kSampledRows; ++r) {
          const bool exists = static_cast<unsigned>(result_row + r) < static_cast<unsigned>(valid_rows);
          char* const place = to + static_cast<long long>(from + i + r) * output_bytes;
          if (exists) *reinterpret_cast<Element*>(place) = convert<Element>(results[r]);
        }
      } else {
        const int first = max_of(-result_row, 0), last = min_of(kSampledRows, valid_rows - result_row);
        if (first >= last) continue;
        // The column as a vector of the result, whose elements are a row apart.
        const auto place_of = [&](const long long* strides, int) {
          return Place{.offset = own.at.batch * strides[0] + own.at.channel * strides[1] +
                                 (row + result_row) * strides[2] + own.at.column * strides[3],
                       .stride = strides[2],
                       .first = first,
                       .last = last};
        };
        finish_slices<typename Chains::Post, kSampledRows, 1>(a.post, a.output, a.output_type(), place_of, results);
      }
    }
    T* const next = other_lines;
    other_lines = lines;
    lines = next;
  }
}

template <class Element, class Image, int Side>
__global__ void __launch_bounds__(column_threads(Side), column_blocks(Side))
    plain_columns_filter2d_kernel(const __grid_constant__ ColumnArguments<Element> a) {
  columns_filter2d<NoChains, Image, Side>(a);
}

template <class Element, class Image, int Side>
__global__ void __launch_bounds__(column_threads(Side), column_blocks(Side))
    columns_filter2d_kernel(const __grid_constant__ ColumnArguments<Element> a) {
  columns_filter2d<ElementwiseFilter2dChains<Element>, Image, Side>(a);
}

template <class Element, class Image, int Side>
struct InterpretedColumns {
  static Kernel<ColumnArguments<Element>> of(const Filter2dParams& params) {
    return is_plain(params) ? plain_columns_filter2d_kernel<Element, Image, Side>
                            : columns_filter2d_kernel<Element, Image, Side>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::columns3, Element> : InterpretedColumns<Element, Element, 3> {};
template <class Element>
struct Interpreted<Filter2dKernel::columns5, Element> : InterpretedColumns<Element, Element, 5> {};
template <class Element>
struct Interpreted<Filter2dKernel::columns7, Element> : InterpretedColumns<Element, Element, 7> {};
template <class Element>
struct Interpreted<Filter2dKernel::columns9, Element> : InterpretedColumns<Element, Element, 9> {};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_columns3, Element> : InterpretedColumns<Element, std::uint8_t, 3> {};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_columns5, Element> : InterpretedColumns<Element, std::uint8_t, 5> {};

}  // namespace sluice
