// Across the channels of planes that are too narrow for vectors along their rows: a tile is transposed while it is
// copied, so that a pixel's channels are contiguous, and the sums are transposed back.
//
//             kernel_width - 1
//        +---------------+---+      a cell for each of a tile's channels per pixel; a plane's pixels are read in order,
//        |    the copy       |      across the ends of its rows
//        +- - - - - - - -+   |
//        |                   |  kernel_height - 1
//        +-------------------+
#pragma once

#include "kernels/operators/filter2d/cpu/tile.h"
#include "kernels/shared/cpu/pixel_sums.h"
#include "kernels/shared/cpu/transpose.h"

namespace sluice {
namespace {

template <class T, class Element>
class OverPlanes : TileWork<T, Element> {
  using Base = TileWork<T, Element>;
  using Base::border_columns, Base::border_rows, Base::place;
  using Base::p_, Base::post_, Base::taps_, Base::image_;
  using Base::same_dtype_, Base::weights_of_, Base::copy_, Base::sums_, Base::weights_;
  static constexpr int kWidth = kLanes<T>;

 public:
  explicit OverPlanes(const Filter2dParams& params)
      : Base(params, 1),
        plain_(params.post.empty() && same_dtype_),
        cells_(round_up<long long>(kPlaneChannels, kWidth)) {}

  // `tile` has whole rows.
  void run(const Tile& tile) {
    if (tile.channel != weights_of_) load_weights(tile);
    const long long pitch = p_.output_width + border_columns(), pixels = tile.rows * tile.columns;
    T* const copy = copy_.allocate((tile.rows + border_rows()) * pitch * cells_);
    load(tile, copy, pitch);
    T* const sums = sums_.allocate((pixels + kWidth) * cells_);
    for (long long y = 0; y < tile.rows; ++y) {
      for (long long c = 0; c < tile.channels; c += kWidth) {
        const PixelWindow<T, T> window{.from = copy + y * pitch * cells_ + c,
                                       .row = pitch * cells_,
                                       .pixel = cells_,
                                       .rows = p_.kernel_height,
                                       .columns = p_.kernel_width,
                                       .weights = weights_.data() + c,
                                       .weight_row = p_.kernel_width * cells_,
                                       .weight_pitch = cells_,
                                       .bias = weights_.data() + taps_ * cells_ + c};
        sum_pixel_row<1>(window, cells_, sums + y * tile.columns * cells_ + c, cells_, tile.columns);
      }
    }
    if (!p_.post.empty()) post_.run_rows(sums, cells_, cells_, pixels, [](int, long long) { return 0LL; });
    store(tile, sums, pixels);
  }

 private:
  void load_weights(const Tile& tile) {
    T* const weights = weights_.allocate((taps_ + 1) * cells_);
    fill_zeros(weights, (taps_ + 1) * cells_);
    this->load_channel_taps(tile.channel, tile.channels, weights, cells_);
    this->load_biases(tile.channel, tile.channels, weights + taps_ * cells_);
    weights_of_ = tile.channel;
  }

  void load(const Tile& tile, T* copy, long long pitch) const {
    const long long top = tile.row - p_.top, height = tile.rows + border_rows();
    const long long first = min_of(height, max_of(0LL, -top)), last = max_of(first, min_of(height, p_.height - top));
    const long long left = p_.left, right = left + p_.width;
    fill_zeros(copy, (first * pitch + left) * cells_);
    for (long long y = first; y < last; ++y) {  // right of one row and left of the next
      fill_zeros(copy + (y * pitch + right) * cells_, (pitch - right + (y + 1 < last ? left : 0)) * cells_);
    }
    fill_zeros(copy + last * pitch * cells_, (height - last) * pitch * cells_);
    for (long long c = 0; c < tile.channels; c += kWidth) {
      Position position{first * pitch + left, 0};
      const Element* const from = image_ + place(p_.image.strides, tile, top + first, 0) + c * p_.image.strides[1];
      const long long pixels = (last - first) * p_.width;
      const int channels = static_cast<int>(min_of<long long>(kWidth, tile.channels - c));
      for (long long at = 0; at < pixels; at += kWidth) {
        const int count = static_cast<int>(min_of<long long>(kWidth, pixels - at));
        Vector<T> square[kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) {
          const Element* const row = from + at + i * p_.image.strides[1];
          square[i] = i >= channels ? Vector<T>{} : count == kWidth ? load_vector<T>(row) : load_partial<T>(row, count);
        }
        transpose<T>(square);
        if (position.x + kWidth <= p_.width && count == kWidth) {
          T* const to = copy + position.pixel * cells_ + c;
#pragma GCC unroll 16
          for (int i = 0; i < kWidth; ++i) store_vector<T>(to + i * cells_, square[i]);
          position.advance(kWidth, p_.width, pitch);
          continue;
        }
        for (int i = 0; i < count; ++i) {
          store_vector<T>(copy + position.pixel * cells_ + c, square[i]);
          position.advance(1, p_.width, pitch);
        }
      }
    }
  }

  // A pixel of the image, in the copy.
  struct Position {
    long long pixel, x;

    void advance(int pixels, long long width, long long pitch) {
      pixel += pixels;
      x += pixels;
      if (x == width) {
        x = 0;
        pixel += pitch - width;
      }
    }
  };

  void store(const Tile& tile, const T* sums, long long pixels) const {
    const long long target = place(p_.output.strides, tile, tile.row, 0);
    for (long long c = 0; c < tile.channels; c += kWidth) {
      const int channels = static_cast<int>(min_of<long long>(kWidth, tile.channels - c));
      for (long long at = 0; at < pixels; at += kWidth) {
        const int count = static_cast<int>(min_of<long long>(kWidth, pixels - at));
        Vector<T> square[kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) square[i] = load_vector<T>(sums + (at + i) * cells_ + c);
        transpose<T>(square);
        T transposed[kWidth * kWidth];
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) store_vector<T>(transposed + i * kWidth, square[i]);
        for (int i = 0; i < channels; ++i) {
          const long long place = target + at + (c + i) * p_.output.strides[1];
          if (plain_ && count == kWidth) {
            store_vector<T>(p_.output.template as<Element>() + place, load_vector<T>(transposed + i * kWidth));
          } else {
            store_elements<Element>(p_.output, same_dtype_, place, 1, count, transposed + i * kWidth);
          }
        }
      }
    }
  }

  const bool plain_;  // sums are stored as they are
  const long long cells_;
};

}  // namespace
}  // namespace sluice
