// Shared by all ways over a tile: the tile, its chains, and a walk over its pixels and its border.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/operators/filter2d/cpu/filter2d.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/cpu/elements.h"
#include "kernels/shared/cpu/scratch.h"
#include "kernels/shared/stages/cpu/chain.h"

namespace sluice {
namespace {

// An element of an image of uint8, which no other tensor has.
struct Byte {
  std::uint8_t value;
};
template <class T>
void load_elements(const Byte* from, long long step, long long count, T* to) {
  if (step == 1) {
    for (long long i = 0; i < count; ++i) to[i] = from[i].value;
  } else {
    with_steps(count, step, [&](long long n, long long place) { to[n] = from[place].value; });
  }
}

struct Tile {
  long long batch, channel, row, column;  // indices of its first output
  long long channels, rows, columns;
};

// Element: the type of the image's elements.
template <class T, class Element>
class TileWork {
 protected:
  using Likely = std::conditional_t<std::is_same_v<Element, Byte>, T, Element>;  // the output's elements

  // `walked`: the dimension along which vectors run.
  TileWork(const Filter2dParams& params, int walked)
      : p_(params),
        pre_(params.pre, params.pre_operands, walked),
        post_(params.post, params.post_operands, walked),
        separable_(params.row_taps.exists()),
        taps_(separable_ ? params.kernel_height : params.kernel_height * params.kernel_width),
        row_taps_(separable_ ? params.kernel_width : 0),
        image_(params.image.template as<Element>()),
        same_dtype_(params.output.dtype == params.image.dtype),
        straight_(params.post.empty() && same_dtype_ && params.output.strides[walked] == 1) {}

  static long long place(const long long* strides, const Tile& tile, long long y, long long x) {
    return tile.batch * strides[0] + tile.channel * strides[1] + y * strides[2] + x * strides[3];
  }
  long long border_rows() const { return static_cast<long long>(p_.sampling.dilation_down) * (p_.kernel_height - 1); }
  long long border_columns() const {
    return static_cast<long long>(p_.sampling.dilation_across) * (p_.kernel_width - 1);
  }
  // The tile's copy: the extent of its windows.
  long long copied_rows(const Tile& tile) const {
    return (tile.rows - 1) * p_.sampling.stride_down + 1 + border_rows();
  }
  long long copied_columns(const Tile& tile) const {
    return (tile.columns - 1) * p_.sampling.stride_across + 1 + border_columns();
  }

  // Calls `load(row, from, count, cell)` for each span of the image's pixels in row `r` of the tile's copy, starting at
  // `cell`, and `zeros(cell, count)` for zeros outside the image.
  template <class Load, class Zeros>
  void walk_row(const Tile& tile, long long r, long long cell, long long pitch, const Load& load,
                const Zeros& zeros) const {
    const long long y = pixel_at(tile.row * p_.sampling.stride_down - p_.top + r, p_.height, p_.sampling.border);
    if (y < 0) return zeros(cell, pitch);
    const long long left = tile.column * p_.sampling.stride_across - p_.left, width = copied_columns(tile);
    const long long from = min_of(width, max_of(0LL, -left)), to = max_of(from, min_of(width, p_.width - left));
    const auto border = [&](long long first, long long last) {
      if (p_.sampling.border == Border::zeros) {
        if (last > first) zeros(cell + first, last - first);
        return;
      }
      for (long long i = first; i < last; ++i) {
        const long long x = pixel_at(left + i, p_.width, p_.sampling.border);
        x < 0 ? zeros(cell + i, 1) : load(y, x, 1, cell + i);
      }
    };
    border(0, from);
    if (to > from) load(y, left + from, to - from, cell + from);
    border(to, width);
    if (pitch > width) zeros(cell + width, pitch - width);
  }
  template <class Load, class Zeros>
  void walk_copy(const Tile& tile, long long pitch, const Load& load, const Zeros& zeros) const {
    for (long long r = 0; r < copied_rows(tile); ++r) walk_row(tile, r, r * pitch, pitch, load, zeros);
  }

  // (tap, channel), `pitch` apart, from channel `c` on; a separable kernel's row of taps comes last.
  void load_channel_taps(long long c, long long channels, T* to, long long pitch) const {
    const long long columns = separable_ ? 1 : p_.kernel_width;
    for (int k = 0; k < taps_; ++k) {
      load_elements(p_.kernel,
                    c * p_.kernel.strides[0] + k / columns * p_.kernel.strides[1] + k % columns * p_.kernel.strides[2],
                    p_.kernel.strides[0], channels, to + k * pitch);
    }
    for (int k = 0; k < row_taps_; ++k) {
      load_elements(p_.row_taps, c * p_.row_taps.strides[0] + k * p_.row_taps.strides[1], p_.row_taps.strides[0],
                    channels, to + (taps_ + k) * pitch);
    }
  }
  void load_biases(long long c, long long channels, T* to) const {
    if (p_.bias.exists()) load_elements(p_.bias, c * p_.bias.strides[0], p_.bias.strides[0], channels, to);
  }

  const Filter2dParams& p_;
  const CpuChain<T> pre_, post_;
  const bool separable_;
  const int taps_, row_taps_;  // taps; separable: of the column, of the row
  const Element* const image_;
  const bool same_dtype_;      // image and output have one dtype
  const bool straight_;        // sums are the result: no chain, no other dtype
  long long weights_of_ = -1;  // the channel that weights_ start with
  Scratch<T> copy_, sums_, weights_;
};

}  // namespace
}  // namespace sluice
