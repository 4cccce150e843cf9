// causal_conv1d of weights with three dimensions and states: a convolution without padding of a window.
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

constexpr char kOp[] = "causal_conv1d", kCache[] = "state_cache";

Before check_padding(const std::string& mode) {
  check(mode == "zeros" || mode == "replicate" || mode == "reflect", kOp,
        ": padding_mode must be zeros, replicate or reflect, got '", mode, "'");
  return mode == "zeros" ? Before::zeros : mode == "replicate" ? Before::replicate : Before::reflect;
}

// The history has no position in the chunk's operands.
void check_positions(const char* op, const Chain& pre) {
  for (const TensorView& operand : pre.operands) {
    check(operand.rank == 0 || operand.sizes[operand.rank - 1] == 1, op,
          ": operands of pre must not vary along positions with a state_cache, which keeps inputs before pre, got ",
          operand.shape());
  }
}

Chunk check_arguments(const Tensor& x, const Tensor& state_cache, const Tensor& weight,
                      const std::optional<Tensor>& bias, const std::optional<Tensor>& cache_indices,
                      const std::optional<Tensor>& has_initial_state, int64_t pad_slot_id,
                      const std::optional<int64_t>& null_slot_id, int64_t stride, int64_t dilation, int64_t groups,
                      const std::string& padding_mode, const std::string& pre, const OptionalTensors& pre_operands,
                      const std::string& post, const OptionalTensors& post_operands,
                      const std::optional<Tensor>& packed, const std::string& precision) {
  const GivenChunk a{
      x,        state_cache, weight, bias,         cache_indices, has_initial_state, pad_slot_id, null_slot_id, stride,
      dilation, groups,      pre,    pre_operands, post,          post_operands,     packed,      precision};
  const TensorView view(x), kernel(weight);
  check_tensors(kOp, a);
  const int64_t columns = std::max<int64_t>(0, reach_of(a) - stride);
  const ConvolutionShapes shapes{.name = "x",
                                 .input = shape_of(view),
                                 .weight = shape_of(kernel),
                                 .stride = stride,
                                 .padding = columns,
                                 .padding_right = 0,
                                 .dilation = dilation,
                                 .groups = groups};
  check(stride < 1 || view.sizes[2] % stride == 0, kOp, ": x must have a multiple of stride = ", stride,
        " positions, got ", view.sizes[2]);
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  // Not within the braces: GCC 12 destroys members twice if the initializer of a later member throws.
  const bool allows_tf32 = check_allows_tf32(kOp, precision);
  const std::vector<int64_t> sizes = check_shapes(kOp, shapes, offset);
  const Before padding = check_padding(padding_mode);
  Chunk c{.convolution = {.op = kOp,
                          .input = x,
                          .weight = weight,
                          .packed = packed,
                          .bias = bias,
                          .stride = stride,
                          .dilation = dilation,
                          .groups = groups,
                          .allows_tf32 = allows_tf32,
                          .dtype = view.dtype,
                          .sizes = sizes},
          .x = x,
          .cache = state_cache,
          .bias = bias,
          .columns = columns,
          .padding = padding};
  c.sizes = sizes;
  const std::string least = "(K - 1) * dilation + 1 - stride = " + std::to_string(columns);
  add_states(c, a,
             {.name = kCache,
              .cache = state_cache,
              .channels = view.sizes[1],
              .least = least,
              .columns = columns,
              .indices = cache_indices,
              .has_initial_state = has_initial_state,
              .pad_slot = pad_slot_id,
              .null_slot = null_slot_id});
  check_positions(kOp, c.pre);
  c.convolution.strides = c.strides;
  c.convolution.post = c.post;
  if (packed.has_value() && !check_packed(kOp, TensorView(*packed), kernel, view, c.convolution.allows_tf32)) {
    c.convolution.packed = std::nullopt;  // the call reads the weight
  }
  check_apart(c, TensorView(state_cache), kCache);
  return c;
}

WindowParams window_params(const Chunk& c) {
  const TensorView x(c.x);
  return {.input = operand_of<3>(x),
          .window = {},
          .states = c.states,
          .channels = x.sizes[1],
          .length = x.sizes[2],
          .history = c.columns,
          .padding = c.padding};
}

// Columns of the window of a row without a state that are zeros, which `pre` does not change.
int64_t zero_columns(const Chunk& c, int64_t length) {
  switch (c.padding) {
    case Before::zeros: return c.columns;
    case Before::reflect: return std::max<int64_t>(0, c.columns - length + 1);
    default: return 0;
  }
}

// The history and the chunk after `pre`.
Tensor window_of(const Chunk& c, const DeviceScope& device) {
  const TensorView x(c.x);
  const std::vector<int64_t> sizes = {x.sizes[0], x.sizes[1], c.columns + x.sizes[2]};
  const Tensor window = allocate(c.op(), sizes, layout_strides(x, sizes, /*spatial=*/1), x.dtype, x);
  const TensorView view(window);
  WindowParams params = window_params(c);
  params.window = operand_of<3>(view);
  launch(device, params);
  if (c.pre.empty()) return window;
  run_transform(c.op(), view, view, c.pre, ScheduleRequest{});
  const int64_t columns = zero_columns(c, x.sizes[2]);
  if (columns == 0) return window;
  launch(device, ZeroRowsParams{.tensor = params.window,
                                .states = c.states,
                                .channels = params.channels,
                                .columns = columns,
                                .without_state = true});
  return window;
}

// Without `output` the result is allocated.
Tensor run_chunk(const Chunk& c, const std::optional<Tensor>& output) {
  const TensorView x(c.x);
  const DeviceScope device(c.op(), x.device_index);
  std::optional<Tensor> result = output;
  if (!c.is_empty() && c.convolution.packed.has_value()) {
    if (!result.has_value()) result = allocate(c.op(), c.sizes, c.strides, x.dtype, x);
    if (run_short(c, device, TensorView(*result))) return *result;
  }
  Convolution convolution = c.convolution;
  if (c.columns == 0) {
    convolution.pre = c.pre;
  } else if (!c.is_empty()) {
    convolution.input = window_of(c, device);
  }
  if (result.has_value()) {
    run_convolution(convolution, *result);
  } else {
    result = convolve(convolution);
  }
  if (c.is_empty()) return *result;
  clear_rows(c, TensorView(*result), device);
  if (c.states.before.exists()) launch(device, window_params(c));
  return *result;
}

using ChunkEntry = ChunkEntries<run_chunk, kCache>;

#define SLUICE_CONV_CHUNK_ARGUMENTS \
  SLUICE_CHUNK_SLOTS "int stride=1, int dilation=1, int groups=1, str padding_mode=\"zeros\", " SLUICE_CHUNK_CHAINS

void define(Library& m) {
  m.def("causal_conv1d_chunk(Tensor x, Tensor(a!) state_cache, " SLUICE_CONV_CHUNK_ARGUMENTS ") -> Tensor");
  m.def("causal_conv1d_chunk_out(Tensor x, Tensor(a!) state_cache, " SLUICE_CONV_CHUNK_ARGUMENTS
        ", Tensor(b!) out) -> ()");
  // For calls whose results go through other memory first.
  m.def("_check_causal_conv1d_chunk(Tensor x, Tensor state_cache, " SLUICE_CONV_CHUNK_ARGUMENTS
        ", Tensor? out=None) -> ()");
}

void implement(Library& m) {
  m.impl("causal_conv1d_chunk", TORCH_BOX((raw_op<check_arguments, ChunkEntry::run>)));
  m.impl("causal_conv1d_chunk_out", TORCH_BOX((raw_op<check_arguments, ChunkEntry::run_out>)));
  m.impl("_check_causal_conv1d_chunk", TORCH_BOX((raw_op<check_arguments, ChunkEntry::check_written>)));
}

}  // namespace

const Registration kCausalConv1dChunk{define, implement};

}  // namespace sluice
