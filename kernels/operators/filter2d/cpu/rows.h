// Along the rows of a plane. A tile is copied with its border, converted, put through `pre` and padded, and summed from
// the copy:
//
//             kernel_width - 1
//        +---------------+---+
//        |    the copy       |      separable: the row of taps is applied to every row of the copy, and the column of
//        |               |   |      taps to the result, which is as narrow as the tile
//        +- - - - - - - -+   |
//        |                   |  kernel_height - 1
//        +-------------------+
//
// With a stride, a row of the copy is sorted by residues of its columns modulo the stride, so that the pixels of
// adjacent outputs are contiguous:
//
//        a0 b0 a1 b1 a2 b2 a3   ->   a0 a1 a2 a3 | b0 b1 b2        a stride of 2
#pragma once

#include "kernels/operators/filter2d/cpu/tile.h"
#include "kernels/shared/cpu/window_sums.h"

namespace sluice {
namespace {

// Narrower tiles are summed as one row, including the pixels between their rows.
constexpr long long kNarrow = 64;
// Narrower tiles are copied whole: their borders would cost more than the copy.
constexpr long long kFewestDirect = 256;

template <class T, class Element>
class AlongRows : TileWork<T, Element> {
  using Base = TileWork<T, Element>;
  using Base::border_columns, Base::border_rows, Base::copied_rows, Base::place, Base::walk_row;
  using Base::p_, Base::pre_, Base::post_, Base::separable_, Base::taps_, Base::row_taps_, Base::image_;
  using Base::same_dtype_, Base::straight_, Base::weights_of_, Base::copy_, Base::sums_, Base::weights_;
  using typename Base::Likely;

 public:
  explicit AlongRows(const Filter2dParams& params)
      : Base(params, 3),
        direct_(std::is_same_v<T, Element> && params.pre.empty() && !separable_ && params.image.strides[3] == 1 &&
                params.sampling.have_unit_steps()),
        offsets_(offset_memory_.allocate(taps_ + row_taps_)) {}

  void run(const Tile& tile) {
    if (tile.channel != weights_of_) load_weights(tile.channel);
    if (!direct_) return sum_copy(tile);
    // Outputs whose windows are inside the image are summed from it, those around them from copies.
    const long long top = max_of(tile.row, p_.top), left = max_of(tile.column, p_.left);
    const long long bottom = min_of(tile.row + tile.rows, p_.height - border_rows() + p_.top);
    const long long right = min_of(tile.column + tile.columns, p_.width - border_columns() + p_.left);
    if (bottom <= top || right - left < kFewestDirect) return sum_copy(tile);
    const auto subtile = [&](long long row, long long end_row, long long column, long long end_column) {
      Tile result = tile;
      result.row = row;
      result.rows = end_row - row;
      result.column = column;
      result.columns = end_column - column;
      return result;
    };
    const auto copied = [&](const Tile& border) {
      if (border.rows > 0 && border.columns > 0) sum_copy(border);
    };
    const long long end_row = tile.row + tile.rows, end_column = tile.column + tile.columns;
    copied(subtile(tile.row, top, tile.column, end_column));
    copied(subtile(top, bottom, tile.column, left));
    copied(subtile(top, bottom, right, end_column));
    copied(subtile(bottom, end_row, tile.column, end_column));
    if constexpr (std::is_same_v<T, Element>) {
      const T* const from = image_ + place(p_.image.strides, tile, top - p_.top, left - p_.left);
      place_taps(p_.image.strides[2]);
      sum_rows(subtile(top, bottom, left, right), from, p_.image.strides[2], /*narrow=*/false, /*is_copy=*/false);
    }
  }

 private:
  // Offsets of taps for rows of `pitch` cells: of the copy or, separable, of the row of taps' result. Each residue
  // modulo the stride has `residue_pitch` cells.
  void place_taps(long long pitch, long long residue_pitch = 0) {
    const auto across = [&](long long j) {
      const long long column = j * p_.sampling.dilation_across, stride = p_.sampling.stride_across;
      return column % stride * residue_pitch + column / stride;
    };
    for (int k = 0; k < taps_; ++k) {
      const long long i = separable_ ? k : k / p_.kernel_width, j = separable_ ? 0 : k % p_.kernel_width;
      offsets_[k] = i * p_.sampling.dilation_down * pitch + across(j);
    }
    for (int k = 0; k < row_taps_; ++k) offsets_[taps_ + k] = across(k);
  }

  void sum_copy(const Tile& tile) {
    const long long stride = p_.sampling.stride_across;
    const bool narrow = tile.columns < kNarrow && stride == 1 && p_.sampling.stride_down == 1;
    // Sums may take up to a vector more than there are columns.
    const long long padded_columns = narrow ? tile.columns : round_up<long long>(tile.columns, kLanes<T>);
    const long long residue_pitch = padded_columns + ceil_div(border_columns(), stride), pitch = residue_pitch * stride,
                    rows = copied_rows(tile);
    T* copy = copy_.allocate(rows * pitch + kLanes<T> + border_columns());
    fill_zeros(copy + rows * pitch, kLanes<T> + border_columns());
    T* const line = stride == 1 ? nullptr : line_.allocate(pitch);
    for (long long r = 0; r < rows; ++r) {
      T* const to = stride == 1 ? copy + r * pitch : line;
      walk_row(
          tile, r, 0, pitch,
          [&](long long y, long long x, long long count, long long cell) {
            load_elements(image_ + place(p_.image.strides, tile, y, x), p_.image.strides[3], count, to + cell);
            pre_.run(to + cell, count, [&](int k) { return place(p_.pre_operands[k].strides, tile, y, x); });
          },
          [&](long long cell, long long count) { fill_zeros(to + cell, count); });
      for (long long residue = 0; stride > 1 && residue < stride; ++residue) {
        load_elements<T>(line + residue, stride, residue_pitch, copy + r * pitch + residue * residue_pitch);
      }
    }
    place_taps(separable_ ? padded_columns : pitch, residue_pitch);
    if (separable_) copy = sum_row_taps(copy, pitch, padded_columns, rows);
    sum_rows(tile, copy, separable_ ? padded_columns : pitch, narrow);
  }

  void load_weights(long long c) {
    T* const weights = weights_.allocate(taps_ + row_taps_);
    const long long columns = separable_ ? 1 : p_.kernel_width;
    for (long long i = 0; i < p_.kernel_height; ++i) {
      load_elements(p_.kernel, c * p_.kernel.strides[0] + i * p_.kernel.strides[1], p_.kernel.strides[2], columns,
                    weights + i * columns);
    }
    if (separable_) {
      load_elements(p_.row_taps, c * p_.row_taps.strides[0], p_.row_taps.strides[1], row_taps_, weights + taps_);
    }
    bias_ = 0;
    if (p_.bias.exists()) load_elements(p_.bias, c * p_.bias.strides[0], 0, 1, &bias_);
    weights_of_ = c;
  }

  T* sum_row_taps(const T* copy, long long pitch, long long padded_columns, long long rows) {
    T* const narrowed = narrowed_.allocate(rows * padded_columns + kLanes<T>);
    fill_zeros(narrowed + rows * padded_columns, kLanes<T>);
    const Taps<T> taps{row_taps_, offsets_ + taps_, weights_.data() + taps_, 0};
    for (long long r = 0; r < rows; ++r) {
      // A narrow row's vectors reach into the next row, which is written later.
      sum_row(copy + r * pitch, taps, T(0), narrowed + r * padded_columns,
              round_up<long long>(padded_columns, kLanes<T>));
    }
    return narrowed;
  }

  // `narrow` copies have no padding; others hold whole vectors, which the image itself (not a copy) does not.
  void sum_rows(const Tile& tile, const T* copy, long long pitch, bool narrow, bool is_copy = true) {
    const Taps<T> taps{taps_, offsets_, weights_.data(), 0};
    if (straight_ && tile.columns >= kLanes<T> && !narrow) {
      Likely* const to = p_.output.template as<Likely>() + place(p_.output.strides, tile, tile.row, tile.column);
      return sum_rectangle(copy, pitch, taps, to, p_.output.strides[2], tile.columns, tile.rows);
    }
    const long long to_pitch = narrow ? pitch : round_up<long long>(tile.columns, kLanes<T>);
    T* const sums = sums_.allocate(tile.rows * to_pitch + kLanes<T>);
    if (narrow) {
      const long long count = (tile.rows - 1) * pitch + tile.columns;
      sum_row(copy, taps, bias_, sums, round_up<long long>(count, kLanes<T>));
    } else {
      sum_rectangle(copy, pitch, taps, sums, to_pitch, is_copy ? to_pitch : tile.columns, tile.rows);
    }
    post_.run_rows(sums, to_pitch, tile.columns, tile.rows, [&](int k, long long r) {
      return place(p_.post_operands[k].strides, tile, tile.row + r, tile.column);
    });
    for (long long r = 0; r < tile.rows; ++r) {
      store_elements<Likely>(p_.output, same_dtype_, place(p_.output.strides, tile, tile.row + r, tile.column),
                             p_.output.strides[3], tile.columns, sums + r * to_pitch);
    }
  }

  template <class To>
  void sum_rectangle(const T* copy, long long pitch, const Taps<T>& taps, To* to, long long to_pitch, long long columns,
                     long long rows) const {
    long long r = 0;
    const int height = p_.kernel_height, width = separable_ ? 1 : p_.kernel_width;
    if (!p_.sampling.have_unit_steps()) {  // taps are not contiguous
    } else if (height == 3 && width == 3) {
      r = sum_squares<3>(copy, pitch, taps.weights, bias_, to, to_pitch, columns, rows);
    } else if (height > 1 && taps.count <= kTapsInASum) {
      r = sum_windows(copy, pitch, taps.weights, height, width, bias_, to, to_pitch, columns, rows);
    }
    const long long step = p_.sampling.stride_down * pitch;
    for (; r < rows; ++r) sum_row(copy + r * step, taps, bias_, to + r * to_pitch, columns);
  }

  const bool direct_;  // the image is read in place where windows are inside it
  Scratch<long long> offset_memory_;
  long long* const offsets_;
  T bias_ = 0;
  Scratch<T> narrowed_, line_;
};

}  // namespace
}  // namespace sluice
