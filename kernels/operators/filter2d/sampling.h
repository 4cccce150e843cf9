// The pixels that a result is summed from: stride, dilation, and the border, which supplies pixels outside the image.
// For host and device.
#pragma once

#include "kernels/shared/common/int_math.h"

namespace sluice {

// torch's padding modes.
enum class Border : int { zeros = 0, replicate = 1, reflect = 2, circular = 3 };
inline constexpr const char* kBorderNames[] = {"zeros", "replicate", "reflect", "circular"};

struct Filter2dSampling {
  int stride_down = 1, stride_across = 1;
  int dilation_down = 1, dilation_across = 1;
  Border border = Border::zeros;
  bool bytes = false;  // the image's elements are uint8; its dtype is the type that is computed in

  // Stride and dilation 1.
  SLUICE_HOST_DEVICE constexpr bool have_unit_steps() const {
    return stride_down == 1 && stride_across == 1 && dilation_down == 1 && dilation_across == 1;
  }
  SLUICE_HOST_DEVICE constexpr bool are_plain() const { return have_unit_steps() && border == Border::zeros && !bytes; }
};

// The row (or column) of the image at `index`, of `extent`; negative for a zero. A border is at most as wide as the
// image (reflect: narrower), so one step leads back; an index further out, which no result needs, is a zero.
SLUICE_HOST_DEVICE constexpr long long pixel_at(long long index, long long extent, Border border) {
  if (index >= 0 && index < extent) return index;
  long long inside = -1;
  if (border == Border::replicate) {
    inside = index < 0 ? 0 : extent - 1;
  } else if (border == Border::reflect) {
    inside = index < 0 ? -index : 2 * (extent - 1) - index;
  } else if (border == Border::circular) {
    inside = index < 0 ? index + extent : index - extent;
  }
  return inside < extent ? inside : -1;
}

// pixel_at for many rows (or columns) of an image of less than 2^30, without branches: outside the image it is a linear
// function of the index.
struct BorderRows {
  int height, above, below, step;

  SLUICE_HOST_DEVICE constexpr BorderRows(long long extent, Border border)
      : height(static_cast<int>(extent)),
        above(border == Border::circular ? height
              : border == Border::zeros  ? -1
                                         : 0),
        below(border == Border::circular    ? -height
              : border == Border::reflect   ? 2 * (height - 1)
              : border == Border::replicate ? height - 1
                                            : -1),
        step(border == Border::circular  ? 1
             : border == Border::reflect ? -1
                                         : 0) {}
  // Not one of the image's: a zero.
  SLUICE_HOST_DEVICE constexpr int at(int y) const { return has(y) ? y : (y < 0 ? above : below) + step * y; }
  SLUICE_HOST_DEVICE constexpr bool has(int y) const {
    return static_cast<unsigned>(y) < static_cast<unsigned>(height);
  }
};

// The results whose windows are inside the image, and not on its first or last row (unaligned.cuh); those around
// them are the frame.
//
//    f f f f f f f      rows 0 .. row - 1
//    f i i i i i f      i: rows row .. end_row - 1, columns column .. end_column - 1
//    f i i i i i f
//    f f f f f f f      the rows below end_row
struct Filter2dInterior {
  int row = 0, end_row = 0, column = 0, end_column = 0;

  SLUICE_HOST_DEVICE constexpr long long frame(long long height, long long width) const {
    return height * width - static_cast<long long>(end_row - row) * (end_column - column);
  }
};

// For windows of `side` x `side` with unit stride and dilation on an image of height x width.
SLUICE_HOST_DEVICE constexpr Filter2dInterior interior_of(long long height, long long width, long long output_height,
                                                          long long output_width, int side, long long top,
                                                          long long left) {
  Filter2dInterior interior;
  // Window rows y - top .. y - top + side - 1 are within 1 .. height - 2.
  const long long end_row = min_of(output_height, height - side + top);
  const long long end_column = min_of(output_width, width - side + 1 + left);
  if (end_row <= top + 1 || end_column <= left) return interior;
  interior.row = static_cast<int>(top + 1);
  interior.end_row = static_cast<int>(end_row);
  interior.column = static_cast<int>(left);
  interior.end_column = static_cast<int>(end_column);
  return interior;
}

// Row and column of result number `index` of the frame.
struct FramePixel {
  long long row, column;
};
SLUICE_HOST_DEVICE constexpr FramePixel frame_pixel(const Filter2dInterior& interior, long long height, long long width,
                                                    long long index) {
  const long long above = interior.row * width, below = (height - interior.end_row) * width;
  if (index < above) return {index / width, index % width};
  index -= above;
  if (index < below) return {interior.end_row + index / width, index % width};
  index -= below;
  const long long beside = interior.column + width - interior.end_column;  // frame pixels of a row beside the interior
  const long long row = index / beside, at = index - row * beside;
  return {interior.row + row, at < interior.column ? at : at - interior.column + interior.end_column};
}

}  // namespace sluice
