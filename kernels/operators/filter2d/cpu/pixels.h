// Across contiguous channels, from the image itself: a window that leaves the image is cut to the part inside.
//
//   at least a vector of channels    vectors of one pixel's channels; the last overlaps the vector before it
//   fewer                            vectors of whole pixels, with the weights once for each:  | c0 c1 c2 | c0 c1 c2 |
#pragma once

#include "kernels/operators/filter2d/cpu/tile.h"
#include "kernels/shared/cpu/pixel_sums.h"

namespace sluice {
namespace {

template <class T, class Element>
class OverPixels : TileWork<T, Element> {
  using Base = TileWork<T, Element>;
  using Base::p_, Base::post_, Base::taps_, Base::image_, Base::place;
  using Base::same_dtype_, Base::straight_, Base::weights_of_, Base::sums_, Base::weights_;
  static constexpr int kWidth = kLanes<T>;

 public:
  // `channels`: of a tile at most.
  OverPixels(const Filter2dParams& params, long long channels)
      : Base(params, 1), spans_(span_memory_.allocate(ceil_div<long long>(channels, kWidth))) {}

  void run(const Tile& tile) {
    if (tile.channel != weights_of_) load_weights(tile.channel, tile.channels);
    if (straight_) {
      Element* const to = p_.output.template as<Element>() + place(p_.output.strides, tile, tile.row, tile.column);
      return sum_tile(tile, to, p_.output.strides[3], p_.output.strides[2]);
    }
    const long long row = tile.columns * tile.channels;
    T* const sums = sums_.allocate(tile.rows * row + kWidth);
    sum_tile(tile, sums, tile.channels, row);
    for (long long r = 0; r < tile.rows; ++r) {
      const long long y = tile.row + r, target = place(p_.output.strides, tile, y, tile.column);
      post_.run_rows(sums + r * row, tile.channels, tile.channels, tile.columns,
                     [&](int k, long long x) { return place(p_.post_operands[k].strides, tile, y, tile.column + x); });
      if (p_.output.strides[1] == 1 && p_.output.strides[3] == tile.channels) {
        store_elements<Element>(p_.output, same_dtype_, target, 1, row, sums + r * row);
        continue;
      }
      for (long long x = 0; x < tile.columns; ++x) {
        store_elements<Element>(p_.output, same_dtype_, target + x * p_.output.strides[3], p_.output.strides[1],
                                tile.channels, sums + r * row + x * tile.channels);
      }
    }
  }

 private:
  struct ChannelSpan {
    long long channel, weight_offset;  // its first channel in the tile, and the offset of its weights
    int vectors;
  };

  // (tap, lane): a vector's weights are contiguous, a pair's weights in the order of pairs. Then the biases.
  void load_weights(long long first, long long channels) {
    span_count_ = 0;
    pitch_ = 0;
    pixels_ = static_cast<int>(max_of<long long>(1, kWidth / channels));
    const auto add = [&](long long channel, int vectors) {
      spans_[span_count_++] = {channel, pitch_, vectors};
      pitch_ += vectors * kWidth;
    };
    long long c = 0;
    for (; c + 2 * kWidth <= channels; c += 2 * kWidth) add(c, 2);
    if (c + kWidth <= channels) {
      add(c, 1);
      c += kWidth;
    }
    if (c < channels) add(max_of<long long>(0, channels - kWidth), 1);

    const long long rows = taps_ + 1LL;
    T* const given = given_.allocate(rows * channels);
    fill_zeros(given, rows * channels);
    this->load_channel_taps(first, channels, given, channels);
    this->load_biases(first, channels, given + taps_ * channels);
    T* const weights = weights_.allocate(rows * pitch_);
    for (long long k = 0; k < rows; ++k) {
      for (int g = 0; g < span_count_; ++g) {
        T* const to = weights + k * pitch_ + spans_[g].weight_offset;
        const int lanes = spans_[g].vectors * kWidth;
        // Once for each pixel of a vector. Not by a remainder: divisions took 40 % of 4 x 256 x 14 x 14 with 5 x 5
        // taps.
        for (long long lane = 0; lane < lanes; lane += channels) {
          const T* const from = given + k * channels + spans_[g].channel;
          for (long long c = 0; c < min_of<long long>(channels, lanes - lane); ++c) to[lane + c] = from[c];
        }
        order_channels<Element>(to, lanes);
      }
    }
    weights_of_ = first;
  }

  // The taps inside the image for the output at (y, x), and for outputs right of it that have the same taps.
  PixelWindow<T, Element> window_at(const Tile& tile, const ChannelSpan& span, long long y, long long x) const {
    const long long first_row = max_of(0LL, p_.top - y), first_column = max_of(0LL, p_.left - x);
    const long long rows = min_of<long long>(p_.kernel_height, p_.height + p_.top - y) - first_row;
    const long long columns = min_of<long long>(p_.kernel_width, p_.width + p_.left - x) - first_column;
    const bool meets = rows > 0 && columns > 0;
    const long long source = place(p_.image.strides, tile, y - p_.top + first_row, x - p_.left + first_column);
    return {.from = meets ? image_ + source + span.channel : image_,
            .row = p_.image.strides[2],
            .pixel = p_.image.strides[3],
            .rows = meets ? static_cast<int>(rows) : 0,
            .columns = meets ? static_cast<int>(columns) : 0,
            .weights = weights_.data() + (first_row * p_.kernel_width + first_column) * pitch_ + span.weight_offset,
            .weight_row = p_.kernel_width * pitch_,
            .weight_pitch = pitch_,
            .bias = weights_.data() + taps_ * pitch_ + span.weight_offset};
  }

  // Outputs with all taps inside are summed along their rows, outputs on the left and right in columns with the
  // same taps, and outputs above and below row by row.
  template <class To>
  void sum_tile(const Tile& tile, To* to, long long to_pixel, long long to_row) const {
    const long long end_column = tile.column + tile.columns, end_row = tile.row + tile.rows;
    const long long left = min_of(end_column, max_of(tile.column, p_.left));
    const long long right = max_of(left, min_of(end_column, p_.width + p_.left - p_.kernel_width + 1));
    const long long top = min_of(end_row, max_of(tile.row, p_.top));
    const long long bottom = max_of(top, min_of(end_row, p_.height + p_.top - p_.kernel_height + 1));
    for (int g = 0; g < span_count_; ++g) {
      const ChannelSpan& span = spans_[g];
      const auto target = [&](long long y, long long x) {
        return to + (y - tile.row) * to_row + (x - tile.column) * to_pixel + span.channel;
      };
      const auto down = [&](long long y, long long end_y, long long x, long long end_x) {
        for (; x < end_x; ++x) {
          const auto window = window_at(tile, span, y, x);
          sum_span(window, span, tile.channels, p_.image.strides[2], target(y, x), to_row, end_y - y);
        }
      };
      const auto along = [&](long long y, long long end_y) {
        for (; y < end_y; ++y) {
          const auto window = window_at(tile, span, y, left);
          sum_row(window, span, tile.channels, target(y, left), to_pixel, right - left);
        }
      };
      const auto cut = [&](long long y, long long end_y) {
        for (; y < end_y; ++y) {
          down(y, y + 1, tile.column, left);
          if (right > left) along(y, y + 1);
          down(y, y + 1, right, end_column);
        }
      };
      cut(tile.row, top);
      if (bottom > top) {
        down(top, bottom, tile.column, left);
        if (right > left) along(top, bottom);
        down(top, bottom, right, end_column);
      }
      cut(bottom, end_row);
    }
  }

  // `count` outputs of one pixel's channels that have the same taps.
  template <class To>
  static void sum_span(const PixelWindow<T, Element>& window, const ChannelSpan& span, long long channels,
                       long long step, To* to, long long to_step, long long count) {
    if (span.vectors == 2) return sum_pixel_row<2>(window, step, to, to_step, count);
    if (channels >= kWidth) return sum_pixel_row<1>(window, step, to, to_step, count);
    sum_parts(window, step, to, to_step, count, static_cast<int>(channels));
  }

  // The same for adjacent outputs, in vectors of whole pixels if they have few channels.
  template <class To>
  void sum_row(const PixelWindow<T, Element>& window, const ChannelSpan& span, long long channels, To* to,
               long long to_step, long long count) const {
    const long long step = p_.image.strides[3];
    if (channels >= kWidth) return sum_span(window, span, channels, step, to, to_step, count);
    // Whole vectors reach into the next pixel, which is written later.
    const long long at_once = pixels_ * channels, whole = at_once == kWidth ? count / pixels_ : (count - 1) / pixels_;
    sum_pixel_row<1>(window, at_once, to, at_once, whole);
    for (long long x = whole * pixels_; x < count; x += pixels_) {
      const int lanes = static_cast<int>(min_of<long long>(pixels_, count - x) * channels);
      sum_part_of_pixels<1>(window, x * channels, 0, to + x * channels, 0, lanes);
    }
  }

  Scratch<ChannelSpan> span_memory_;
  ChannelSpan* const spans_;
  int span_count_ = 0, pixels_ = 1;  // spans of channels, and pixels of a vector
  long long pitch_ = 0;
  Scratch<T> given_;
};

}  // namespace
}  // namespace sluice
