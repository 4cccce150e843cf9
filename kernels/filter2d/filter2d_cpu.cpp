// A tile is copied with its border, converted, put through `pre` and padded, and summed from the copy:
//
//             kernel_width - 1
//        +---------------+---+      a slot for each pixel; across channels, one for each channel of it
//        |    the copy       |
//        |               |   |      separable: the row of taps goes over every row of the copy, and the column of taps
//        +- - - - - - - -+   |      over the result of that, which is as narrow as the tile
//        |                   |  kernel_height - 1
//        +-------------------+
#include "kernels/filter2d/filter2d_cpu.h"

#include "kernels/common/elements_cpu.h"
#include "kernels/common/int_math.h"
#include "kernels/common/scratch_cpu.h"
#include "kernels/common/tap_sums_cpu.h"
#include "kernels/common/window_sums_cpu.h"
#include "kernels/stages/chain_cpu.h"

namespace sluice {
namespace {

// Narrower tiles are summed as one row, with the pixels between their rows.
constexpr long long kNarrow = 64;
// Narrower ones are copied whole: their borders would cost more than the copy.
constexpr long long kFewestDirect = 256;

struct Tile {
  long long batch, channel, row, column;  // of its first output
  long long channels, rows, columns;
};

// Element: of the image.
template <class T, class Element>
class Filter2d {
 public:
  Filter2d(const Filter2dParams& params, const Filter2dCpuTiles& tiles)
      : p_(params),
        tiles_(tiles),
        walked_(tiles.across_channels ? 1 : 3),
        pre_(params.pre, params.pre_operands, walked_),
        post_(params.post, params.post_operands, walked_),
        separable_(params.row_taps.exists()),
        taps_(separable_ ? params.kernel_height : params.kernel_height * params.kernel_width),
        row_taps_(separable_ ? params.kernel_width : 0),
        image_(params.image.template as<Element>()),
        same_dtype_(params.output.dtype == params.image.dtype),
        straight_(params.post.empty() && same_dtype_ && params.output.strides[walked_] == 1),
        direct_(std::is_same_v<T, Element> && params.pre.empty() && !separable_ && params.image.strides[3] == 1),
        offsets_(offset_memory_.room_for(taps_ + row_taps_)) {}

  void run(long long index) {
    const auto take = [&](long long extent, long long step, long long tiles, long long& first, long long& count) {
      first = index % tiles * step;
      count = min_of(step, extent - first);
      index /= tiles;
    };
    Tile tile{};
    take(p_.output_width, tiles_.columns, tiles_.tiles_across, tile.column, tile.columns);
    take(p_.output_height, tiles_.rows, tiles_.tiles_down, tile.row, tile.rows);
    take(p_.channels, tiles_.channels, tiles_.channel_tiles, tile.channel, tile.channels);
    tile.batch = index;
    if (tiles_.across_channels) {
      run_channels(tile);
    } else {
      run_rows(tile);
    }
  }

 private:
  static long long place(const long long* strides, const Tile& tile, long long y, long long x) {
    return tile.batch * strides[0] + tile.channel * strides[1] + y * strides[2] + x * strides[3];
  }
  long long border_rows() const { return p_.kernel_height - 1; }
  long long border_columns() const { return p_.kernel_width - 1; }

  // Taps of rows of `pitch` slots, of the copy or, separable, of what the row of taps has left.
  void place_taps(long long pitch, long long slot) {
    for (int k = 0; k < taps_; ++k) {
      offsets_[k] = separable_ ? k * pitch : k / p_.kernel_width * pitch + k % p_.kernel_width * slot;
    }
    for (int k = 0; k < row_taps_; ++k) offsets_[taps_ + k] = k * slot;
  }

  // Calls `load(row, from, count, slot)` for each run of pixels of the image in the tile's copy, `zeros(slot, count)`
  // for what is beside it.
  template <class Load, class Zeros>
  void walk_copy(const Tile& tile, long long pitch, const Load& load, const Zeros& zeros) const {
    const long long left = tile.column - p_.left, width = tile.columns + border_columns();
    const long long from = min_of(width, max_of(0LL, -left)), to = max_of(from, min_of(width, p_.width - left));
    for (long long r = 0; r < tile.rows + border_rows(); ++r) {
      const long long y = tile.row - p_.top + r, slot = r * pitch;
      if (y < 0 || y >= p_.height) {
        zeros(slot, pitch);
        continue;
      }
      if (from > 0) zeros(slot, from);
      if (to > from) load(y, left + from, to - from, slot + from);
      if (pitch > to) zeros(slot + to, pitch - to);
    }
  }

  // --- along rows ---

  void run_rows(const Tile& tile) {
    if (tile.channel != weights_of_) load_weights(tile.channel);
    if (!direct_) return sum_copy(tile);
    // The outputs whose windows lie in the image are summed from there, those around them from copies.
    const long long top = max_of(tile.row, p_.top), left = max_of(tile.column, p_.left);
    const long long bottom = min_of(tile.row + tile.rows, p_.height - border_rows() + p_.top);
    const long long right = min_of(tile.column + tile.columns, p_.width - border_columns() + p_.left);
    if (bottom <= top || right - left < kFewestDirect) return sum_copy(tile);
    const auto part = [&](long long row, long long end_row, long long column, long long end_column) {
      Tile part = tile;
      part.row = row;
      part.rows = end_row - row;
      part.column = column;
      part.columns = end_column - column;
      return part;
    };
    const auto copied = [&](const Tile& border) {
      if (border.rows > 0 && border.columns > 0) sum_copy(border);
    };
    const long long end_row = tile.row + tile.rows, end_column = tile.column + tile.columns;
    copied(part(tile.row, top, tile.column, end_column));
    copied(part(top, bottom, tile.column, left));
    copied(part(top, bottom, right, end_column));
    copied(part(bottom, end_row, tile.column, end_column));
    if constexpr (std::is_same_v<T, Element>) {
      const T* const from = image_ + place(p_.image.strides, tile, top - p_.top, left - p_.left);
      place_taps(p_.image.strides[2], 1);
      sum_rows(part(top, bottom, left, right), from, p_.image.strides[2], /*narrow=*/false, /*is_copy=*/false);
    }
  }

  void sum_copy(const Tile& tile) {
    const bool narrow = tile.columns < kNarrow;
    // Sums may take a vector more than there are columns.
    const long long room = narrow ? tile.columns : round_up<long long>(tile.columns, kLanes<T>);
    const long long pitch = room + border_columns(), rows = tile.rows + border_rows();
    T* copy = copy_.room_for(rows * pitch + kLanes<T> + border_columns());
    fill_zeros(copy + rows * pitch, kLanes<T> + border_columns());
    walk_copy(
        tile, pitch,
        [&](long long y, long long x, long long count, long long slot) {
          load_elements(image_ + place(p_.image.strides, tile, y, x), p_.image.strides[3], count, copy + slot);
          pre_.run(copy + slot, count, [&](int k) { return place(p_.pre_operands[k].strides, tile, y, x); });
        },
        [&](long long slot, long long count) { fill_zeros(copy + slot, count); });
    place_taps(separable_ ? room : pitch, 1);
    if (separable_) copy = sum_row_taps(copy, pitch, room, rows);
    sum_rows(tile, copy, separable_ ? room : pitch, narrow);
  }

  void load_weights(long long c) {
    T* const weights = weights_.room_for(taps_ + row_taps_);
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

  T* sum_row_taps(const T* copy, long long pitch, long long room, long long rows) {
    T* const narrowed = narrowed_.room_for(rows * room + kLanes<T>);
    fill_zeros(narrowed + rows * room, kLanes<T>);
    const Taps<T> taps{row_taps_, offsets_ + taps_, weights_.data() + taps_, 0};
    for (long long r = 0; r < rows; ++r) {
      // A narrow row's vectors reach into the next row, which is written after them.
      sum_row(copy + r * pitch, taps, T(0), narrowed + r * room, round_up<long long>(room, kLanes<T>));
    }
    return narrowed;
  }

  // `narrow` copies of a tile; others have room for whole vectors, which the image (not a copy) has not.
  void sum_rows(const Tile& tile, const T* copy, long long pitch, bool narrow, bool is_copy = true) {
    const Taps<T> taps{taps_, offsets_, weights_.data(), 0};
    if (straight_ && tile.columns >= kLanes<T> && !narrow) {
      Element* const to = p_.output.template as<Element>() + place(p_.output.strides, tile, tile.row, tile.column);
      return sum_rectangle(copy, pitch, taps, to, p_.output.strides[2], tile.columns, tile.rows);
    }
    const long long to_pitch = narrow ? pitch : round_up<long long>(tile.columns, kLanes<T>);
    T* const sums = sums_.room_for(tile.rows * to_pitch + kLanes<T>);
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
      store_elements<Element>(p_.output, same_dtype_, place(p_.output.strides, tile, tile.row + r, tile.column),
                              p_.output.strides[3], tile.columns, sums + r * to_pitch);
    }
  }

  template <class To>
  void sum_rectangle(const T* copy, long long pitch, const Taps<T>& taps, To* to, long long to_pitch, long long columns,
                     long long rows) const {
    long long r = 0;
    const int height = p_.kernel_height, width = separable_ ? 1 : p_.kernel_width;
    if (height == 3 && width == 3) {
      r = sum_squares<3>(copy, pitch, taps.weights, bias_, to, to_pitch, columns, rows);
    } else if (height > 1 && taps.count <= kTapsInASum) {
      r = sum_windows(copy, pitch, taps.weights, height, width, bias_, to, to_pitch, columns, rows);
    }
    for (; r < rows; ++r) sum_row(copy + r * pitch, taps, bias_, to + r * to_pitch, columns);
  }

  // --- across channels ---

  void run_channels(const Tile& tile) {
    const int slot = static_cast<int>(round_up<long long>(tile.channels, kLanes<T>));
    const long long width = tile.columns + border_columns(), rows = tile.rows + border_rows();
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

  // (tap, channel), then the row of taps, then biases, and as many zeros.
  void load_channel_weights(const Tile& tile, int slot) {
    const long long all = taps_ + row_taps_ + 2;
    T* const weights = weights_.room_for(all * slot);
    fill_zeros(weights, all * slot);
    const long long columns = separable_ ? 1 : p_.kernel_width;
    for (int k = 0; k < taps_; ++k) {
      load_elements(
          p_.kernel,
          tile.channel * p_.kernel.strides[0] + k / columns * p_.kernel.strides[1] + k % columns * p_.kernel.strides[2],
          p_.kernel.strides[0], tile.channels, weights + k * slot);
    }
    for (int k = 0; k < row_taps_; ++k) {
      load_elements(p_.row_taps, tile.channel * p_.row_taps.strides[0] + k * p_.row_taps.strides[1],
                    p_.row_taps.strides[0], tile.channels, weights + (taps_ + k) * slot);
    }
    if (p_.bias.exists()) {
      load_elements(p_.bias, tile.channel * p_.bias.strides[0], p_.bias.strides[0], tile.channels,
                    weights + (all - 2) * slot);
    }
    weights_of_ = tile.channel;
  }

  T* sum_row_taps_across(const Tile& tile, const T* copy, long long width, int slot, long long rows) {
    T* const narrowed = narrowed_.room_for(rows * tile.columns * slot);
    const T* const weights = weights_.data() + taps_ * slot;
    const Taps<T> taps{row_taps_, offsets_ + taps_, weights, slot};
    const T* const no_bias = weights + (row_taps_ + 1) * slot;
    for (long long r = 0; r < rows; ++r) {
      sum_positions(copy + r * width * slot, slot, taps, no_bias, narrowed + r * tile.columns * slot, slot, slot,
                    tile.columns);
    }
    return narrowed;
  }

  void sum_channels(const Tile& tile, const T* copy, long long pitch, int slot) {
    const Taps<T> taps{taps_, offsets_, weights_.data(), slot};
    const T* const bias = weights_.data() + (taps_ + row_taps_) * slot;
    T* const sums = sums_.room_for(tile.columns * slot);
    for (long long r = 0; r < tile.rows; ++r) {
      const long long y = tile.row + r, target = place(p_.output.strides, tile, y, tile.column);
      if (straight_ && tile.channels == slot) {
        sum_positions(copy + r * pitch, slot, taps, bias, p_.output.template as<Element>() + target,
                      p_.output.strides[3], slot, tile.columns);
        continue;
      }
      sum_positions(copy + r * pitch, slot, taps, bias, sums, slot, slot, tile.columns);
      post_.run_rows(sums, slot, tile.channels, tile.columns,
                     [&](int k, long long x) { return place(p_.post_operands[k].strides, tile, y, tile.column + x); });
      for (long long x = 0; x < tile.columns; ++x) {
        store_elements<Element>(p_.output, same_dtype_, target + x * p_.output.strides[3], p_.output.strides[1],
                                tile.channels, sums + x * slot);
      }
    }
  }

  const Filter2dParams& p_;
  const Filter2dCpuTiles& tiles_;
  const int walked_;  // the dimension along which vectors run
  const CpuChain<T> pre_, post_;
  const bool separable_;
  const int taps_, row_taps_;  // separable: of the column, of the row
  const Element* const image_;
  const bool same_dtype_;  // of the output
  const bool straight_;    // sums go into the result without a chain or another dtype between
  const bool direct_;      // the image is read as it lies where a window does not leave it
  Scratch<long long> offset_memory_;
  long long* const offsets_;
  long long weights_of_ = -1;  // the channel that weights_ begin with
  T bias_ = 0;
  Scratch<T> copy_, narrowed_, sums_, weights_;
};

}  // namespace

template <>
void filter2d_cpu<kInstructionSet>(const Filter2dParams& params, const Filter2dCpuTiles& tiles, long long first,
                                   long long last) {
  with_sums_of(params.image.dtype, [&]<class T, class Element>() {
    Filter2d<T, Element> filter(params, tiles);
    for (long long tile = first; tile < last; ++tile) filter.run(tile);
  });
}

}  // namespace sluice
