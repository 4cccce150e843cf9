// Across channels, by a copy of the tile with its border: a cell for each channel of each pixel. Separable kernels as
// along rows.
#pragma once

#include "kernels/operators/filter2d/cpu/tile.h"
#include "kernels/shared/cpu/tap_sums.h"

namespace sluice {
namespace {

template <class T, class Element>
class AcrossChannels : TileWork<T, Element> {
  using Base = TileWork<T, Element>;
  using Base::copied_columns, Base::copied_rows, Base::place, Base::walk_copy;
  using Base::p_, Base::pre_, Base::post_, Base::separable_, Base::taps_, Base::row_taps_, Base::image_;
  using Base::same_dtype_, Base::straight_, Base::weights_of_, Base::copy_, Base::sums_, Base::weights_;
  using typename Base::Likely;

 public:
  explicit AcrossChannels(const Filter2dParams& params)
      : Base(params, 1), offsets_(offset_memory_.allocate(taps_ + row_taps_)) {}

  void run(const Tile& tile) {
    const int cells = static_cast<int>(round_up<long long>(tile.channels, kLanes<T>));
    const long long width = copied_columns(tile), rows = copied_rows(tile);
    T* copy = copy_.allocate(rows * width * cells);
    walk_copy(
        tile, width,
        [&](long long y, long long x, long long count, long long first) {
          if (p_.image.strides[1] == 1 && p_.image.strides[3] == cells && tile.channels == cells &&
              p_.pre.operands == 0) {
            load_elements(image_ + place(p_.image.strides, tile, y, x), 1, count * cells, copy + first * cells);
            return pre_.run(copy + first * cells, count * cells, [](int) { return 0LL; });
          }
          for (long long i = 0; i < count; ++i) {
            T* const to = copy + (first + i) * cells;
            load_elements(image_ + place(p_.image.strides, tile, y, x + i), p_.image.strides[1], tile.channels, to);
            pre_.run(to, tile.channels, [&](int k) { return place(p_.pre_operands[k].strides, tile, y, x + i); });
            for (long long c = tile.channels; c < cells; ++c) to[c] = 0;
          }
        },
        [&](long long first, long long count) { fill_zeros(copy + first * cells, count * cells); });
    place_taps((separable_ ? tile.columns : width) * cells, cells);
    if (tile.channel != weights_of_) load_channel_weights(tile, cells);
    if (separable_) copy = sum_row_taps_across(tile, copy, width, cells, rows);
    sum_channels(tile, copy, (separable_ ? tile.columns : width) * cells, cells);
  }

 private:
  // Offsets of taps for rows of `pitch` cells: of the copy or, separable, of the row of taps' result. `cells`: of a
  // pixel.
  void place_taps(long long pitch, long long cells) {
    for (int k = 0; k < taps_; ++k) {
      const long long i = separable_ ? k : k / p_.kernel_width, j = separable_ ? 0 : k % p_.kernel_width;
      offsets_[k] = i * p_.sampling.dilation_down * pitch + j * p_.sampling.dilation_across * cells;
    }
    for (int k = 0; k < row_taps_; ++k) offsets_[taps_ + k] = k * p_.sampling.dilation_across * cells;
  }

  // (tap, channel), then the row of taps, then biases, then as many zeros.
  void load_channel_weights(const Tile& tile, int cells) {
    const long long all = taps_ + row_taps_ + 2;
    T* const weights = weights_.allocate(all * cells);
    fill_zeros(weights, all * cells);
    this->load_channel_taps(tile.channel, tile.channels, weights, cells);
    this->load_biases(tile.channel, tile.channels, weights + (all - 2) * cells);
    weights_of_ = tile.channel;
  }

  T* sum_row_taps_across(const Tile& tile, const T* copy, long long width, int cells, long long rows) {
    T* const narrowed = narrowed_.allocate(rows * tile.columns * cells);
    const T* const weights = weights_.data() + taps_ * cells;
    const Taps<T> taps{row_taps_, offsets_ + taps_, weights, cells};
    const T* const no_bias = weights + (row_taps_ + 1) * cells;
    for (long long r = 0; r < rows; ++r) {
      sum_positions(copy + r * width * cells, p_.sampling.stride_across * cells, taps, no_bias,
                    narrowed + r * tile.columns * cells, cells, cells, tile.columns);
    }
    return narrowed;
  }

  void sum_channels(const Tile& tile, const T* copy, long long pitch, int cells) {
    const Taps<T> taps{taps_, offsets_, weights_.data(), cells};
    const T* const bias = weights_.data() + (taps_ + row_taps_) * cells;
    T* const sums = sums_.allocate(tile.columns * cells);
    const long long step = separable_ ? cells : p_.sampling.stride_across * cells;
    for (long long r = 0; r < tile.rows; ++r) {
      const long long y = tile.row + r, target = place(p_.output.strides, tile, y, tile.column);
      const T* const from = copy + r * p_.sampling.stride_down * pitch;
      if (straight_ && tile.channels == cells) {
        sum_positions(from, step, taps, bias, p_.output.template as<Likely>() + target, p_.output.strides[3], cells,
                      tile.columns);
        continue;
      }
      sum_positions(from, step, taps, bias, sums, cells, cells, tile.columns);
      post_.run_rows(sums, cells, tile.channels, tile.columns,
                     [&](int k, long long x) { return place(p_.post_operands[k].strides, tile, y, tile.column + x); });
      for (long long x = 0; x < tile.columns; ++x) {
        store_elements<Likely>(p_.output, same_dtype_, target + x * p_.output.strides[3], p_.output.strides[1],
                               tile.channels, sums + x * cells);
      }
    }
  }

  Scratch<long long> offset_memory_;
  long long* const offsets_;
  Scratch<T> narrowed_;
};

}  // namespace
}  // namespace sluice
