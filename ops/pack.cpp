// pack: packs the weight of a dense conv1d for the tensor-core kernels, ahead of its calls. Checks packed weights.
#include "ops/pack.h"

#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "kernels/shared/common/int_math.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/ops.h"

namespace sluice {
namespace {

constexpr const char* kOp = "pack";
constexpr int64_t kMost = int64_t{1} << 31;

// Whether tensor-core kernels read packed weights of a dtype.
bool is_packed_as(DType dtype) { return is_half(dtype) || dtype == DType::float32; }

// Refuses other dtypes; `argument` has the dtype.
DType check_packed_dtype(const char* argument, ScalarType dtype) {
  const std::optional<DType> known = dtype_of(dtype);
  check(known.has_value() && is_packed_as(*known), kOp, ": ", argument,
        " must have dtype float32, float16 or bfloat16, got ", name_of(dtype));
  return *known;
}

PackedOrder order_of(int64_t channels, int64_t input_channels, int64_t taps, DType dtype, bool allows_tf32) {
  return packed_order(channels, input_channels, static_cast<int>(taps), static_cast<int>(size_of(dtype)),
                      parts_of(dtype, allows_tf32));
}

std::vector<int64_t> shape_of(const PackedOrder& order) {
  return {order.k_blocks, int64_t{order.taps} * order.parts, order.rows, order.k_block};
}

void check_sizes(int64_t channels, int64_t input_channels, int64_t taps) {
  const std::vector<int64_t> sizes = {channels, input_channels, taps};
  for (int64_t size : sizes) {
    check(size > 0 && size < kMost, kOp, ": weight must have extents of 1 to 2^31 - 1, got ", ShapeText{sizes});
  }
}

// The packed shape of a weight of these sizes; by default in a half type.
std::vector<int64_t> packed_shape(int64_t channels, int64_t input_channels, int64_t taps,
                                  const std::optional<ScalarType>& dtype, const std::string& precision) {
  check_sizes(channels, input_channels, taps);
  const DType packed = dtype.has_value() ? check_packed_dtype("dtype", *dtype) : DType::float16;
  return shape_of(order_of(channels, input_channels, taps, packed, check_allows_tf32(kOp, precision)));
}

// Checks the weight and converts it to the packed dtype.
Tensor check_arguments(const Tensor& weight, const std::optional<ScalarType>& dtype) {
  const TensorView view(weight);
  check_floating(kOp, "weight", view);
  check(view.rank == 3, kOp, ": weight must have shape (out_channels, in_channels, taps), got ", view.shape());
  const char* const argument = dtype.has_value() ? "dtype" : "weight";
  return aten::to_dtype(weight, check_packed_dtype(argument, dtype.value_or(view.scalar_type)));
}

Tensor pack_conv1d_weight(const Tensor& given, const std::optional<ScalarType>& dtype, const std::string& precision) {
  const Tensor weight = check_arguments(given, dtype);
  const TensorView view(weight);
  check_sizes(view.sizes[0], view.sizes[1], view.sizes[2]);
  const PackedOrder order =
      order_of(view.sizes[0], view.sizes[1], view.sizes[2], view.dtype, check_allows_tf32(kOp, precision));
  const std::vector<int64_t> shape = shape_of(order);
  Tensor packed = allocate(kOp, shape, contiguous_strides(shape), view.dtype, view);
  const PackParams params{
      .weight = operand_of<3>(view),
      .channels = view.sizes[0],
      .input_channels = view.sizes[1],
      .packed = TensorView(packed).data,
      .order = order,
  };
  launch(DeviceScope(kOp, view.device_index), params);
  return packed;
}

// Refuses a `packed` that does not match the input, or has not the shape `shape_with(allows_tf32)` for either
// precision. Returns whether it is packed for the call's. `maker` packs as the rule asks.
template <class ShapeWith>
bool check_packed_as(const char* op, const char* maker, const TensorView& packed, const TensorView& weight,
                     const TensorView& input, bool allows_tf32, const ShapeWith& shape_with) {
  check(packed.scalar_type == input.scalar_type && is_packed_as(input.dtype), op,
        ": packed must have dtype float32, float16 or bfloat16 like the input, got ", name_of(packed.scalar_type),
        " for ", name_of(input.scalar_type));
  check_device(op, "packed", packed, input);
  const std::vector<int64_t> shape = shape_with(allows_tf32);
  const bool has_precision = packed.has_sizes(shape);
  check(has_precision || packed.has_sizes(shape_with(!allows_tf32)), op, ": packed must have shape ", ShapeText{shape},
        " for a weight of ", weight.shape(), ", as ", maker, " makes it, got ", packed.shape());
  constexpr std::uintptr_t kAlignment = 16;
  check(packed.is_contiguous(), op, ": packed must be contiguous, as ", maker, " makes it, got strides ",
        ShapeText{{packed.strides, static_cast<std::size_t>(packed.rank)}});
  check(reinterpret_cast<std::uintptr_t>(packed.data) % kAlignment == 0, op,
        ": packed must begin at a multiple of 16 bytes, as ", maker, " makes it, got ", packed.data);
  return has_precision;
}

// Whether results of some layout interleave by positions.
bool may_interleave_positions(Conv1dTensors whole) {
  whole.channels = 1;  // a result of one channel is channels-first in every layout
  return interleaves_positions(whole);
}

}  // namespace

bool check_packed(const char* op, const TensorView& packed, const TensorView& weight, const TensorView& input,
                  bool allows_tf32) {
  return check_packed_as(op, "sluice.pack", packed, weight, input, allows_tf32, [&](bool tf32) {
    return shape_of(order_of(weight.sizes[0], weight.sizes[1], weight.sizes[2], input.dtype, tf32));
  });
}

std::array<PackedOrder, 2> packed_ranges(const Conv1dTensors& whole, int64_t input_channels, DType dtype,
                                         bool allows_tf32) {
  const auto order = [&](const ComponentRange& range) {
    const int64_t rows = range.taps > 0 ? range.components * round_up<int64_t>(whole.channels, kSwizzleRows) : 0;
    return order_of(rows, input_channels, range.taps, dtype, allows_tf32);
  };
  const std::array<ComponentRange, 2> ranges = ranges_by_taps(whole);
  return {order(ranges[0]), order(ranges[1])};
}

bool check_packed_transposed(const char* op, const TensorView& packed, const TensorView& weight,
                             const TensorView& input, int64_t stride, int64_t dilation, bool allows_tf32) {
  Conv1dTensors whole{};
  whole.channels = weight.sizes[1];
  whole.taps = static_cast<int>(weight.sizes[2]);
  whole.stride = stride;
  whole.dilation = dilation;
  const int64_t input_channels = weight.sizes[0];
  const bool is_of_rank_4 = packed.rank > 1 && (stride == 1 || may_interleave_positions(whole));
  return check_packed_as(op, "sluice.nn.ConvTranspose1d", packed, weight, input, allows_tf32, [&](bool tf32) {
    if (is_of_rank_4) {
      return shape_of(order_of(whole.channels * stride, input_channels, whole.taps / stride, input.dtype, tf32));
    }
    const std::array<PackedOrder, 2> ranges = packed_ranges(whole, input_channels, input.dtype, tf32);
    return std::vector<int64_t>{ranges[0].elements() + ranges[1].elements()};
  });
}

namespace {

void define(Library& m) {
  m.def("_pack_conv1d_weight(Tensor weight, ScalarType? dtype=None, str precision=\"ieee\") -> Tensor");
  m.def(
      "_packed_conv1d_shape(int channels, int input_channels, int taps, ScalarType? dtype=None, "
      "str precision=\"ieee\") -> int[]");
}

void implement(Library& m) { m.impl("_pack_conv1d_weight", TORCH_BOX(&pack_conv1d_weight)); }

void implement_everywhere(Library& m) { m.impl("_packed_conv1d_shape", TORCH_BOX(&packed_shape)); }

}  // namespace

const Registration kPack{define, implement, implement_everywhere};

}  // namespace sluice
