// Across channels, by a copy of the tile with its border: a slot for each pixel, with one for each channel of it.
// Separable kernels as along rows.
#pragma once

#include "kernels/common/tap_sums_cpu.h"
#include "kernels/filter2d/tile_cpu.h"

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
      : Base(params, 1), offsets_(offset_memory_.room_for(taps_ + row_taps_)) {}

  void run(const Tile& tile) {
    const int slot = static_cast<int>(round_up<long long>(tile.channels, kLanes<T>));
    const long long width = copied_columns(tile), rows = copied_rows(tile);
    T* copy = copy_.room_for(rows * width * slot);
    walk_copy(
        tile, width,
        [&](long long y, long long x, long long count, long long first) {
          if (p_.image.strides[1] == 1 && p_.image.strides[3] == slot && tile.channels == slot &&
              p_.pre.operands == 0) {
            load_elements(image_ + place(p_.image.strides, tile, y, x), 1, count * slot, copy + first * slot);
            return pre_.run(copy + first * slot, count * slot, [](int) { return 0LL; });
          }
          for (long long i = 0; i < count; ++i) {
            T* const to = copy + (first + i) * slot;
            load_elements(image_ + place(p_.image.strides, tile, y, x + i), p_.image.strides[1], tile.channels, to);
            pre_.run(to, tile.channels, [&](int k) { return place(p_.pre_operands[k].strides, tile, y, x + i); });
            for (long long c = tile.channels; c < slot; ++c) to[c] = 0;
          }
        },
        [&](long long first, long long count) { fill_zeros(copy + first * slot, count * slot); });
    place_taps((separable_ ? tile.columns : width) * slot, slot);
    if (tile.channel != weights_of_) load_channel_weights(tile, slot);
    if (separable_) copy = sum_row_taps_across(tile, copy, width, slot, rows);
    sum_channels(tile, copy, (separable_ ? tile.columns : width) * slot, slot);
  }

 private:
  // Taps of rows of `pitch` slots, of the copy or, separable, of what the row of taps has left.
  void place_taps(long long pitch, long long slot) {
    for (int k = 0; k < taps_; ++k) {
      const long long i = separable_ ? k : k / p_.kernel_width, j = separable_ ? 0 : k % p_.kernel_width;
      offsets_[k] = i * p_.windows.dilation_down * pitch + j * p_.windows.dilation_across * slot;
    }
    for (int k = 0; k < row_taps_; ++k) offsets_[taps_ + k] = k * p_.windows.dilation_across * slot;
  }

  // (tap, channel), then the row of taps, then biases, and as many zeros.
  void load_channel_weights(const Tile& tile, int slot) {
    const long long all = taps_ + row_taps_ + 2;
    T* const weights = weights_.room_for(all * slot);
    fill_zeros(weights, all * slot);
    this->load_channel_taps(tile.channel, tile.channels, weights, slot);
    this->load_biases(tile.channel, tile.channels, weights + (all - 2) * slot);
    weights_of_ = tile.channel;
  }

  T* sum_row_taps_across(const Tile& tile, const T* copy, long long width, int slot, long long rows) {
    T* const narrowed = narrowed_.room_for(rows * tile.columns * slot);
    const T* const weights = weights_.data() + taps_ * slot;
    const Taps<T> taps{row_taps_, offsets_ + taps_, weights, slot};
    const T* const no_bias = weights + (row_taps_ + 1) * slot;
    for (long long r = 0; r < rows; ++r) {
      sum_positions(copy + r * width * slot, p_.windows.stride_across * slot, taps, no_bias,
                    narrowed + r * tile.columns * slot, slot, slot, tile.columns);
    }
    return narrowed;
  }

  void sum_channels(const Tile& tile, const T* copy, long long pitch, int slot) {
    const Taps<T> taps{taps_, offsets_, weights_.data(), slot};
    const T* const bias = weights_.data() + (taps_ + row_taps_) * slot;
    T* const sums = sums_.room_for(tile.columns * slot);
    const long long step = separable_ ? slot : p_.windows.stride_across * slot;
    for (long long r = 0; r < tile.rows; ++r) {
      const long long y = tile.row + r, target = place(p_.output.strides, tile, y, tile.column);
      const T* const from = copy + r * p_.windows.stride_down * pitch;
      if (straight_ && tile.channels == slot) {
        sum_positions(from, step, taps, bias, p_.output.template as<Likely>() + target, p_.output.strides[3], slot,
                      tile.columns);
        continue;
      }
      sum_positions(from, step, taps, bias, sums, slot, slot, tile.columns);
      post_.run_rows(sums, slot, tile.channels, tile.columns,
                     [&](int k, long long x) { return place(p_.post_operands[k].strides, tile, y, tile.column + x); });
      for (long long x = 0; x < tile.columns; ++x) {
        store_elements<Likely>(p_.output, same_dtype_, target + x * p_.output.strides[3], p_.output.strides[1],
                               tile.channels, sums + x * slot);
      }
    }
  }

  Scratch<long long> offset_memory_;
  long long* const offsets_;
  Scratch<T> narrowed_;
};

}  // namespace
}  // namespace sluice
