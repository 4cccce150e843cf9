// What a plan knows of filter2d's tensors.
#include <cstdint>

#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/filter2d/policy.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

Filter2dProblem problem_of(const Filter2dParams& params) {
  const int width = word_elements(params.image.dtype);
  const bool in_rows = has_rows(params);
  const bool equally_aligned = params.output.strides[3] == 1 && params.output.strides[2] % width == 0;
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(params.output.data) % (width * size_of(params.output.dtype)) == 0 &&
      params.output.strides[0] % width == 0 && params.output.strides[1] % width == 0;
  constexpr long long kMostElements = (1LL << 30) / 8;  // elements of a plane of any dtype
  const auto is_small = [](const long long* strides, long long height, long long width) {
    const long long row = strides[2] < 0 ? -strides[2] : strides[2], column = strides[3] < 0 ? -strides[3] : strides[3];
    return height < kMostElements && width < kMostElements && row < kMostElements && column < kMostElements &&
           height * row + width * column < kMostElements;
  };
  return {.batch = params.batch,
          .channels = params.channels,
          .output_height = params.output_height,
          .output_width = params.output_width,
          .kernel_height = params.kernel_height,
          .kernel_width = params.kernel_width,
          .separable = params.row_taps.exists(),
          .dtype = params.image.dtype,
          .casts = params.output.dtype != params.image.dtype,
          .shifted = equally_aligned && !aligned,
          .aligned = is_aligned(params),
          .has_pre = !params.pre.empty(),
          .has_post = !params.post.empty(),
          .has_tensors = params.post.operands > 0,
          .column_stride = params.image.strides[3],
          .rows_equally_aligned = params.image.strides[3] == 1 && params.image.strides[2] % width == 0,
          .has_small_planes = is_small(params.image.strides, params.height, params.width) &&
                              is_small(params.output.strides, params.output_height, params.output_width),
          .in_channels = params.channels > 1 && params.image.strides[1] == 1 && params.output.strides[1] == 1,
          .sampling = params.sampling,
          .in_rows = in_rows,
          .interior = in_rows ? interior_of(params.height, params.width, params.output_height, params.output_width,
                                            params.kernel_height, params.top, params.left)
                              : Filter2dInterior{}};
}

bool has_rows(const Filter2dParams& params) {
  constexpr long long kMost = 1LL << 30;
  const auto fits = [](const long long* strides, long long width) { return strides[3] == 1 && strides[2] >= width; };
  return fits(params.image.strides, params.width) && fits(params.output.strides, params.output_width) &&
         max_of(params.height, params.output_height) < kMost && max_of(params.width, params.output_width) < kMost &&
         params.top < params.kernel_height && params.left < params.kernel_width &&
         params.output_width < params.width + params.kernel_width && params.width >= kUnalignedLeastExtent;
}

bool is_aligned(const Filter2dParams& params) {
  const long long vector = word_elements(params.image.dtype);
  const auto starts_words = [&](const void* data, DType dtype, const long long* strides, long long height) {
    const long long alignment = min_of<long long>(kWordBytes, vector * static_cast<long long>(size_of(dtype)));
    const long long step = alignment / static_cast<long long>(size_of(dtype));
    const auto fits = [&](int d, long long size) { return size == 1 || strides[d] % step == 0; };
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0 && strides[3] == 1 &&
           fits(0, params.batch) && fits(1, params.channels) && fits(2, height);
  };
  return params.sampling.are_plain() && !params.row_taps.exists() && params.kernel_width % 2 == 1 &&
         params.left == params.kernel_width / 2 && params.top >= 0 && params.top < params.kernel_height &&
         params.output_width == params.width && params.width % vector == 0 &&
         starts_words(params.image.data, params.image.dtype, params.image.strides, params.height) &&
         starts_words(params.output.data, params.output.dtype, params.output.strides, params.output_height);
}

}  // namespace sluice
