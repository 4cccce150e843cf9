// filter2d: arguments to a Stencil, checked.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/ops.h"
#include "ops/stencil.h"

namespace sluice {
namespace {

constexpr char kOp[] = "filter2d";
// Larger than any tensor's, and small enough that no sum or product in a plan overflows.
constexpr int64_t kLimit = int64_t{1} << 31;        // of padding
constexpr int64_t kKernelLimit = int64_t{1} << 24;  // of a kernel's sides
// Bytes with default sampling and more taps are converted first, for columns of floats; tiles of bytes take borders.
constexpr int64_t kMostTapsOfBytes = 25;

int64_t count_planes(const TensorView& image) {
  return std::accumulate(image.sizes, image.sizes + image.rank - 2, int64_t{1}, std::multiplies<>());
}

// (kh, kw) or (C, kh, kw); separable: (kh,) and (kw,), or (C, kh) and (C, kw).
void check_kernel(const TensorView& image, const TensorView& kernel, const std::optional<TensorView>& row_kernel) {
  const int64_t channels = channels_of(image), taps = row_kernel.has_value() ? 1 : 2;
  const auto fits = [&](const TensorView& part) {
    return part.rank == taps || (part.rank == taps + 1 && image.rank > 2 && part.sizes[0] == channels);
  };
  if (!row_kernel.has_value()) {
    check(fits(kernel), kOp, ": kernel must have shape (kh, kw) or (C, kh, kw) with C = ", channels, ", got ",
          kernel.shape());
  } else {
    check(fits(kernel) && fits(*row_kernel) && kernel.rank == row_kernel->rank, kOp,
          ": kernel must have two vectors of shapes (kh,) and (kw,), or (C, kh) and (C, kw) with C = ", channels,
          ", got ", kernel.shape(), " and ", row_kernel->shape());
  }
  const auto has_taps = [&](const TensorView& part) {
    return std::all_of(part.sizes + part.rank - taps, part.sizes + part.rank,
                       [](int64_t extent) { return extent > 0; });
  };
  constexpr const char* kNoTaps = ": kernel must have at least one tap, got ";
  if (row_kernel.has_value()) {
    check(has_taps(kernel) && has_taps(*row_kernel), kOp, kNoTaps, kernel.shape(), " and ", row_kernel->shape());
  } else {
    check(has_taps(kernel), kOp, kNoTaps, kernel.shape());
  }
  const int64_t height = kernel.sizes[kernel.rank - taps],
                width = (row_kernel.has_value() ? *row_kernel : kernel).sizes[kernel.rank - 1];
  check(height < kKernelLimit && width < kKernelLimit, kOp,
        ": kernel must be smaller than 2^24 in each dimension, got ", kernel.shape());
}

// Padding that keeps the image's size; windows of an even extent get the extra one below and on the right.
Padding check_padding(const std::optional<std::vector<int64_t>>& padding, int64_t height, int64_t width,
                      const Filter2dSampling& sampling) {
  if (!padding.has_value()) {
    check(sampling.stride_down == 1 && sampling.stride_across == 1, kOp, ": padding='same' must have stride 1, got (",
          sampling.stride_down, ", ", sampling.stride_across, ")");
    const int64_t top = (height - 1) / 2, left = (width - 1) / 2;
    return {.top = top, .bottom = height - 1 - top, .left = left, .right = width - 1 - left};
  }
  check(padding->size() == 2, kOp, ": padding must be two numbers, got ", padding->size());
  for (int64_t pixels : *padding) {
    check(pixels >= 0 && pixels < kLimit, kOp, ": padding must be at least 0 and less than 2^31, got ", pixels);
  }
  const int64_t vertical = (*padding)[0], horizontal = (*padding)[1];
  return {.top = vertical, .bottom = vertical, .left = horizontal, .right = horizontal};
}

Filter2dSampling check_sampling(const std::vector<int64_t>& stride, const std::vector<int64_t>& dilation,
                                const std::string& mode) {
  const auto pair = [](const char* argument, const std::vector<int64_t>& numbers) {
    check(numbers.size() == 2, kOp, ": ", argument, " must be two numbers, got ", numbers.size());
    for (int64_t number : numbers) {
      check(number >= 1 && number < kLimit, kOp, ": ", argument, " must be at least 1 and less than 2^31, got ",
            number);
    }
  };
  pair("stride", stride);
  pair("dilation", dilation);
  const auto* const found = std::find(std::begin(kBorderNames), std::end(kBorderNames), mode);
  check(found != std::end(kBorderNames), kOp,
        ": padding_mode must be 'zeros', 'replicate', 'reflect' or 'circular', got '", mode, "'");
  return {.stride_down = static_cast<int>(stride[0]),
          .stride_across = static_cast<int>(stride[1]),
          .dilation_down = static_cast<int>(dilation[0]),
          .dilation_across = static_cast<int>(dilation[1]),
          .border = static_cast<Border>(found - std::begin(kBorderNames))};
}

// A border's pixels come from the image: torch's limits.
void check_border(const TensorView& image, const Padding& padding, Border border) {
  if (border != Border::reflect && border != Border::circular) return;
  const auto fits = [&](const char* what, int64_t pixels, int64_t extent) {
    const int64_t most = border == Border::reflect ? extent - 1 : extent;
    check(pixels <= std::max<int64_t>(most, 0), kOp, ": padding must be at most ", most, " ", what,
          " with padding_mode='", kBorderNames[static_cast<int>(border)], "' for an image of ", extent, ", got ",
          pixels);
  };
  fits("rows", std::max(padding.top, padding.bottom), image.sizes[image.rank - 2]);
  fits("columns", std::max(padding.left, padding.right), image.sizes[image.rank - 1]);
}

// The sizes of the result. `height` and `width` are a window's.
std::vector<int64_t> check_extent(const TensorView& image, int64_t height, int64_t width, const Padding& padding,
                                  const Filter2dSampling& sampling) {
  std::vector<int64_t> sizes = sizes_of(image);
  int64_t& rows = sizes[image.rank - 2];
  int64_t& columns = sizes[image.rank - 1];
  rows += padding.top + padding.bottom;
  columns += padding.left + padding.right;
  check(rows >= height && columns >= width, kOp, ": image must be at least ", height, " x ", width,
        " with padding, the kernel's size, got ", rows, " x ", columns);
  // torch's rule: an image without pixels is refused unless it has no planes.
  check(image.elements() > 0 || count_planes(image) == 0, kOp, ": image must have at least one pixel, got ",
        image.shape());
  rows = (rows - height) / sampling.stride_down + 1;
  columns = (columns - width) / sampling.stride_across + 1;
  return sizes;
}

Stencil check_arguments(const Tensor& given, const Tensor& kernel, const std::optional<Tensor>& bias,
                        const std::optional<std::vector<int64_t>>& padding, const std::optional<Tensor>& row_kernel,
                        const std::string& pre, const OptionalTensors& pre_operands, const std::string& post,
                        const OptionalTensors& post_operands, const std::optional<ScalarType>& dtype,
                        const std::string& schedule, const std::optional<int64_t>& depth,
                        const std::vector<int64_t>& stride, const std::vector<int64_t>& dilation,
                        const std::string& padding_mode) {
  const bool bytes = TensorView(given).scalar_type == ScalarType::Byte;
  check(bytes || TensorView(given).is_floating, kOp,
        ": image must have dtype float32, float16, bfloat16, float64 or uint8, got ",
        name_of(TensorView(given).scalar_type));
  const TensorView image(given), taps(kernel);
  check_memory(kOp, "image", image);
  const DType computed = bytes ? DType::float32 : image.dtype;
  check(image.rank >= 2, kOp, ": image must have shape (..., H, W), got ", image.shape());
  std::optional<TensorView> across, offset;
  if (row_kernel.has_value()) across.emplace(*row_kernel);
  if (bias.has_value()) offset.emplace(*bias);
  check_kernel(image, taps, across);
  const auto check_like_image = [&](const char* argument, const TensorView& tensor) {
    check(tensor.is_floating && tensor.dtype == computed, kOp, ": ", argument, " must have dtype ", name_of(computed),
          bytes ? " for a uint8 image, got " : " like the image, got ", name_of(tensor.scalar_type));
    check_device(kOp, argument, tensor, image);
  };
  check_like_image("kernel", taps);
  if (across.has_value()) check_like_image("kernel", *across);
  const bool shared = taps.rank == (across.has_value() ? 1 : 2);
  const int64_t offsets = shared ? 1 : channels_of(image);
  if (offset.has_value()) {
    check_like_image("bias", *offset);
    check(offset->has_sizes({offsets}), kOp, ": bias must have shape (", offsets, ",), got ", offset->shape());
  }
  const int64_t height = across.has_value() ? taps.sizes[taps.rank - 1] : taps.sizes[taps.rank - 2];
  const int64_t width = across.has_value() ? across->sizes[across->rank - 1] : taps.sizes[taps.rank - 1];
  Filter2dSampling sampling = check_sampling(stride, dilation, padding_mode);
  // A window's extent.
  const int64_t rows = sampling.dilation_down * (height - 1) + 1, columns = sampling.dilation_across * (width - 1) + 1;
  const Padding border = check_padding(padding, rows, columns, sampling);
  const ScheduleRequest request = check_schedule(kOp, schedule, depth);
  const std::vector<int64_t> sizes = check_extent(image, rows, columns, border, sampling);
  check_border(image, border, sampling.border);
  const bool is_ring = !request.automatic && request.schedule != Schedule::direct;
  const bool plain = sampling.are_plain() && (is_ring || height * width > kMostTapsOfBytes);
  sampling.bytes = bytes && !plain;
  Chain before(kOp, "pre", pre, pre_operands, image, sizes_of(image));
  Chain after(kOp, "post", post, post_operands, image, sizes);
  const DType result = check_result_dtype(kOp, dtype).value_or(after.result_dtype().value_or(computed));
  for (Chain* chain : {&before, &after}) chain->program.set_precision(computed, result);
  return {.op = kOp,
          .image = bytes && plain ? aten::to_dtype(given, computed) : given,
          .kernel = kernel,
          .row_kernel = row_kernel,
          .bias = bias,
          .height = height,
          .width = width,
          .padding = border,
          .sampling = sampling,
          .pre = std::move(before),
          .post = std::move(after),
          .dtype = result,
          .schedule = request,
          .sizes = sizes,
          .strides = layout_strides(image, sizes, /*spatial=*/2)};
}

Tensor filter2d(const Stencil& s) {
  Tensor output = allocate(kOp, s.sizes, s.strides, s.dtype, TensorView(s.image));
  const TensorView view(output);
  if (view.elements() > 0) run_stencil(s, view);
  return output;
}

void check_result(const Stencil& s, const TensorView& out) {
  check_out(kOp, out, s.sizes, s.dtype, TensorView(s.image));
  check_no_overlap(kOp, out, "image", s.image);
  check_no_overlap(kOp, out, "kernel", s.kernel);
  check_no_overlap(kOp, out, "kernel", s.row_kernel);
  check_no_overlap(kOp, out, "bias", s.bias);
  s.pre.check_no_overlap(kOp, out, "an operand of pre", /*may_be_same=*/false);
  s.post.check_no_overlap(kOp, out, "an operand of post", /*may_be_same=*/true);
}

void filter2d_out(const Stencil& s, const Tensor& out) {
  const TensorView view(out);
  check_result(s, view);
  aten::raise_version(kOp, out);
  if (view.elements() > 0) run_stencil(s, view);
}

std::string answer(const Stencil& s, const std::optional<Tensor>& out, const CallMode& mode) {
  check_planned(kOp, mode, s.sizes);
  if (out.has_value()) check_result(s, TensorView(*out));
  const TensorView result =
      out.has_value() ? TensorView(*out) : TensorView(TensorView(s.image), s.sizes, s.strides, s.dtype);
  return result.elements() == 0 ? kEmptyResult : run_stencil(s, result, mode);
}

constexpr char kArguments[] =
    "Tensor image, Tensor kernel, Tensor? bias=None, int[]? padding=None, *, Tensor? row_kernel=None, str pre=\"\", "
    "Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None, ScalarType? dtype=None, "
    "str schedule=\"auto\", int? depth=None, int[2] stride=1, int[2] dilation=1, str padding_mode=\"zeros\"";

}  // namespace

const Registration kFilter2d = Entries<kOp, kArguments, check_arguments, filter2d, filter2d_out, answer>::kRegistration;

}  // namespace sluice
