#include "ops/causal_chunk.h"

#include "kernels/shared/common/int_math.h"
#include "ops/common/allocate.h"
#include "ops/common/launch.h"
#include "ops/convolution/call.h"

namespace sluice {

int64_t reach_of(const GivenChunk& a) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const TensorView weight(a.weight);
  const bool fits = weight.rank == 3 && weight.sizes[2] < kLimit && a.dilation > 0 && a.dilation < kLimit;
  return fits ? a.dilation * (weight.sizes[2] - 1) + 1 : 0;
}

void check_tensors(const char* op, const GivenChunk& a) {
  const TensorView x(a.x);
  check_floating(op, "x", x);
  check(x.rank == 3, op, ": x must have shape (batch, channels, length), got ", x.shape());
  check_like_input(op, "weight", TensorView(a.weight), x);
  if (a.bias.has_value()) check_like_input(op, "bias", TensorView(*a.bias), x);
}

void add_states(Chunk& c, const GivenChunk& a, const CacheArguments& cache) {
  const TensorView x(a.x);
  c.pre = Chain(c.op(), "pre", a.pre, a.pre_operands, x, sizes_of(x));
  c.post = Chain(c.op(), "post", a.post, a.post_operands, x, c.sizes);
  for (Chain* chain : {&c.pre, &c.post}) chain->program.set_precision(x.dtype, x.dtype);
  c.strides = layout_strides(x, c.sizes, /*spatial=*/1);
  c.states.count = x.sizes[0];
  check_cache(c.op(), cache, x, c.states, c.indices);
}

void check_apart(const Chunk& c, const TensorView& written, const char* name) {
  const auto apart = [&](const char* argument, const std::optional<Tensor>& tensor) {
    if (tensor.has_value()) check_no_overlap(c.op(), written, argument, TensorView(*tensor), false, name);
  };
  apart("x", c.x);
  apart("weight", c.convolution.weight);
  apart("packed", c.convolution.packed);
  apart("bias", c.bias);
  for (const auto& [argument, index] : c.indices) apart(argument, index);
  for (const Chain* chain : {&c.pre, &c.post}) {
    for (const TensorView& operand : chain->operands) {
      check_no_overlap(c.op(), written, "an operand of a chain", operand, false, name);
    }
  }
}

namespace {

PackedOrder order_of(const Chunk& c, int64_t rows, int taps) {
  const TensorView x(c.x);
  return packed_order(rows, x.sizes[1], taps, static_cast<int>(size_of(x.dtype)),
                      parts_of(x.dtype, c.convolution.allows_tf32));
}

// The numbers of a transposed convolution as one over frames, whose taps are a stride apart. Returns whether all of its
// components have as many.
bool spread_taps(const Chunk& c, ChunkParams& p) {
  const Convolution& own = c.convolution;
  const int64_t taps = TensorView(own.weight).sizes[2];
  if (taps % own.stride != 0 || own.dilation != 1) return false;
  const bool by_channels = TensorView(*own.packed).rank == 1;
  const int64_t pitch = by_channels ? round_up<int64_t>(c.sizes[1], kSwizzleRows) : c.sizes[1];
  p.taps = static_cast<int>(taps / own.stride);
  p.order = order_of(c, pitch * own.stride, p.taps);
  p.spread = static_cast<int>(own.stride);
  const bool adjacent = by_channels || own.stride == 1;  // channels of a component are
  p.channel_rows = adjacent ? 1 : own.stride;
  p.component_rows = adjacent ? pitch : 1;
  p.stride = p.dilation = 1;
  p.chunk.history = p.taps - 1;
  p.frames = p.chunk.length + p.chunk.history;
  p.overlap = c.columns;
  return true;
}

void convolve_taps(const Chunk& c, ChunkParams& p) {
  const Convolution& own = c.convolution;
  p.taps = static_cast<int>(TensorView(own.weight).sizes[2]);
  p.order = order_of(c, c.sizes[1], p.taps);
  p.stride = static_cast<int>(own.stride), p.dilation = static_cast<int>(own.dilation);
  p.chunk.history = c.columns;
  p.frames = c.sizes[2];
  p.channel_rows = 1;
}

}  // namespace

bool run_short(const Chunk& c, const DeviceScope& device, const TensorView& output) {
  const Convolution& own = c.convolution;
  if (device.is_cpu() || !own.packed.has_value() || own.groups != 1 || c.has_cpp()) return false;
  const TensorView x(c.x);
  ChunkParams p{{.chunk = {.input = operand_of<3>(x),
                           .window = {},
                           .states = c.states,
                           .channels = x.sizes[1],
                           .length = x.sizes[2],
                           .history = 0,
                           .padding = c.padding},
                 .output = operand_of<3>(output),
                 .bias = operand_of<1>(c.bias),
                 .packed = TensorView(*own.packed).data,
                 .order = {},
                 .rows = x.sizes[0],
                 .channels = c.sizes[1],
                 .frames = 0,
                 .taps = 0,
                 .stride = 1,
                 .dilation = 1,
                 .spread = 0,
                 .channel_rows = 0,
                 .component_rows = 0,
                 .overlap = 0}};
  if (!own.is_transposed) {
    convolve_taps(c, p);
  } else if (!spread_taps(c, p)) {
    return false;
  }
  const ChunkPlan plan = plan_chunk(p, x.dtype, *device.properties());
  if (plan.grid == 0) return false;
  c.fill_chains(p);
  const std::optional<Tensor> workspace = allocate_workspace(c.op(), plan.workspace_bytes, output);
  launch(device, p, plan, workspace.has_value() ? TensorView(*workspace).data : nullptr);
  return true;
}

void clear_rows(const Chunk& c, const TensorView& output, const DeviceScope& device) {
  if (!c.states.slots.exists()) return;
  launch(device, ZeroRowsParams{.tensor = operand_of<3>(output),
                                .states = c.states,
                                .channels = c.sizes[1],
                                .columns = c.sizes[2],
                                .without_state = false});
}

}  // namespace sluice
