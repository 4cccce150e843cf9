// causal_conv_transpose1d with overlaps: a transposed convolution into sums, and a pass of the bias and `post`.
#include <utility>

#include "ops/causal_chunk.h"
#include "ops/common/allocate.h"
#include "ops/common/launch.h"
#include "ops/common/raw_op.h"
#include "ops/convolution/shapes.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/pack.h"

namespace sluice {
namespace {

constexpr char kOp[] = "causal_conv_transpose1d", kCache[] = "overlap_cache";

Chunk check_arguments(const Tensor& x, const Tensor& overlap_cache, const Tensor& weight,
                      const std::optional<Tensor>& bias, const std::optional<Tensor>& cache_indices,
                      const std::optional<Tensor>& has_initial_state, int64_t pad_slot_id,
                      const std::optional<int64_t>& null_slot_id, int64_t stride, int64_t groups, int64_t dilation,
                      const std::string& pre, const OptionalTensors& pre_operands, const std::string& post,
                      const OptionalTensors& post_operands, const std::optional<Tensor>& packed,
                      const std::string& precision) {
  const GivenChunk a{x,
                     overlap_cache,
                     weight,
                     bias,
                     cache_indices,
                     has_initial_state,
                     pad_slot_id,
                     null_slot_id,
                     stride,
                     dilation,
                     groups,
                     pre,
                     pre_operands,
                     post,
                     post_operands,
                     packed,
                     precision};
  const TensorView view(x), kernel(weight), cache(overlap_cache);
  check_tensors(kOp, a);
  const int64_t reach = reach_of(a), overlap = std::max<int64_t>(0, reach - stride);
  const TransposedShapes shapes{.name = "x",
                                .input = shape_of(view),
                                .weight = shape_of(kernel),
                                .stride = stride,
                                .padding = 0,
                                .padding_right = 0,
                                .output_padding = reach > 0 ? std::max<int64_t>(0, stride - reach) : 0,
                                .groups = groups,
                                .dilation = dilation};
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  const DType dtype = view.dtype == DType::float64 ? DType::float64 : DType::float32;
  const bool allows_tf32 = check_allows_tf32(kOp, precision);
  const std::vector<int64_t> sizes = check_transposed_shapes(kOp, shapes, offset);
  Chunk c{.convolution = {.op = kOp,
                          .input = x,
                          .weight = weight,
                          .packed = packed,
                          .stride = stride,
                          .dilation = dilation,
                          .groups = groups,
                          .is_transposed = true,
                          .output_padding = shapes.output_padding,
                          .keeps_sums = true,
                          .allows_tf32 = allows_tf32,
                          .dtype = dtype,
                          .sizes = sizes},
          .x = x,
          .cache = overlap_cache,
          .bias = bias,
          .columns = overlap};
  c.sizes = sizes;
  c.sizes[2] -= overlap;
  const std::string least = "dilation * (K - 1) + 1 - stride = " + std::to_string(overlap);
  add_states(c, a,
             {.name = kCache,
              .cache = overlap_cache,
              .channels = c.sizes[1],
              .least = least,
              .columns = overlap,
              .indices = cache_indices,
              .has_initial_state = has_initial_state,
              .pad_slot = pad_slot_id,
              .null_slot = null_slot_id});
  check(cache.dtype == dtype, kOp, ": overlap_cache must have dtype ", name_of(scalar_type_of(dtype)),
        ", in which overlaps are summed, got ", name_of(cache.scalar_type));
  c.convolution.strides = layout_strides(view, c.convolution.sizes, /*spatial=*/1);
  c.convolution.pre = c.pre;
  if (packed.has_value() &&
      !check_packed_transposed(kOp, TensorView(*packed), kernel, view, stride, dilation, c.convolution.allows_tf32)) {
    c.convolution.packed = std::nullopt;  // the call reads the weight
  }
  check_apart(c, cache, kCache);
  return c;
}

// `post` after the bias, which the overlap must not have. A chain that has no room for it follows a pass of its own.
void finish(const Chunk& c, const TensorView& sums, const TensorView& output) {
  Chain chain = c.post;
  std::optional<ChannelOperand> bias;
  if (c.bias.has_value() && !chain.prepend_addition(bias.emplace(*c.bias).view())) {
    Chain addition;
    addition.prepend_addition(bias->view());
    run_transform(c.op(), sums, sums, addition, ScheduleRequest{});
  }
  run_transform(c.op(), sums, output, chain, ScheduleRequest{});
}

// Runs the kernel of short chunks of depthwise convolutions if it takes the call: result, overlaps and all.
bool run_depthwise(const Chunk& c, const DeviceScope& device, const TensorView& output) {
  const TensorView x(c.x), weight(c.convolution.weight);
  if (device.is_cpu() || c.has_cpp() || c.convolution.groups != x.sizes[1]) return false;
  const int64_t most = kDepthwiseOverlapSums, limit = int64_t{1} << 31;
  if (c.sizes[2] + c.columns > most || c.sizes[1] >= limit / c.sizes[0]) return false;
  DepthwiseOverlapParams p{.input = operand_of<3>(x),
                           .output = operand_of<3>(output),
                           .weight = operand_of<3>(weight),
                           .bias = operand_of<1>(c.bias),
                           .states = c.states,
                           .channels = c.sizes[1],
                           .of_channel = weight.sizes[1],
                           .length = x.sizes[2],
                           .overlap = c.columns,
                           .taps = static_cast<int>(weight.sizes[2]),
                           .stride = static_cast<int>(c.convolution.stride),
                           .dilation = static_cast<int>(c.convolution.dilation),
                           .pre = {},
                           .post = {},
                           .pre_operands = {},
                           .post_operands = {}};
  c.fill_chains(p);
  launch(device, p);
  return true;
}

Tensor run_chunk(const Chunk& c, const std::optional<Tensor>& output) {
  const TensorView x(c.x);
  const DeviceScope device(c.op(), x.device_index);
  const Tensor result = output.has_value() ? *output : allocate(c.op(), c.sizes, c.strides, x.dtype, x);
  const TensorView target(result);
  if (c.is_empty() || run_short(c, device, target) || run_depthwise(c, device, target)) return result;
  const Tensor sums = convolve(c.convolution);
  const TensorView whole(sums);
  TensorView outputs = whole;
  outputs.sizes = c.sizes.data();
  OverlapParams params{.sums = operand_of<3>(whole),
                       .states = c.states,
                       .channels = c.sizes[1],
                       .length = c.sizes[2],
                       .overlap = c.columns,
                       .replaces = false};
  if (c.columns > 0) launch(device, params);
  finish(c, outputs, target);
  clear_rows(c, target, device);
  params.replaces = true;
  if (c.columns > 0) launch(device, params);
  return result;
}

using ChunkEntry = ChunkEntries<run_chunk, kCache>;

#define SLUICE_TRANSPOSED_CHUNK_ARGUMENTS \
  SLUICE_CHUNK_SLOTS "int stride=1, int groups=1, int dilation=1, " SLUICE_CHUNK_CHAINS

void define(Library& m) {
  m.def("causal_conv_transpose1d_chunk(Tensor x, Tensor(a!) overlap_cache, " SLUICE_TRANSPOSED_CHUNK_ARGUMENTS
        ") -> Tensor");
  m.def("causal_conv_transpose1d_chunk_out(Tensor x, Tensor(a!) overlap_cache, " SLUICE_TRANSPOSED_CHUNK_ARGUMENTS
        ", Tensor(b!) out) -> ()");
  // For calls whose results go through other memory first.
  m.def("_check_causal_conv_transpose1d_chunk(Tensor x, Tensor overlap_cache, " SLUICE_TRANSPOSED_CHUNK_ARGUMENTS
        ", Tensor? out=None) -> ()");
}

void implement(Library& m) {
  m.impl("causal_conv_transpose1d_chunk", TORCH_BOX((raw_op<check_arguments, ChunkEntry::run>)));
  m.impl("causal_conv_transpose1d_chunk_out", TORCH_BOX((raw_op<check_arguments, ChunkEntry::run_out>)));
  m.impl("_check_causal_conv_transpose1d_chunk", TORCH_BOX((raw_op<check_arguments, ChunkEntry::check_written>)));
}

}  // namespace

const Registration kCausalConvTranspose1dChunk{define, implement};

}  // namespace sluice
