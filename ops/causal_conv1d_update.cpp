// causal_conv1d_update: arguments to an UpdateParams, and its two entries, which update the state in place.
#include <utility>

#include "kernels/operators/causal_conv1d/update.h"
#include "ops/causal.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/chain.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/common/raw_op.h"
#include "ops/ops.h"

namespace sluice {
namespace {

constexpr const char* kOp = "causal_conv1d_update";

// A checked call.
struct Update {
  Tensor x, conv_state, weight;
  std::optional<Tensor> bias;
  NamedTensors indices;
  Chain pre, post;
  std::vector<int64_t> sizes, strides;  // the result's
  UpdateTensors tensors;                // without input, output, weight and bias
};

// A tensor of indices, with its name for messages.
struct IndexArgument {
  const char* name;
  const std::optional<Tensor>& tensor;
};

void check_one_each(const IndexArgument& argument, int64_t sequences, const TensorView& x) {
  if (!argument.tensor.has_value()) return;
  const TensorView index(*argument.tensor);
  check_index(kOp, argument.name, index, x);
  check(index.has_sizes({sequences}), kOp, ": ", argument.name, " must have shape (", sequences, ",), got ",
        index.shape());
}

void check_x(const TensorView& x, bool packed) {
  check_floating(kOp, "x", x);
  if (packed) {
    check(x.rank == 2, kOp, ": x must have shape (tokens, channels) with query_start_loc, got ", x.shape());
  } else {
    check(x.rank == 2 || x.rank == 3, kOp, ": x must have shape (batch, channels) or (batch, channels, tokens), got ",
          x.shape());
  }
}

StateLayout layout_of(const std::string& state_at, bool is_circular, bool has_accepted) {
  check(state_at == "end" || state_at == "front", kOp, ": state_at must be end or front, got '", state_at, "'");
  const bool is_front = state_at == "front";
  check(is_front || !has_accepted, kOp, ": state_at must be front with num_accepted_tokens, got 'end'");
  check(!is_front || !is_circular, kOp, ": state_at must be end with cache_seqlens, got 'front'");
  if (has_accepted) return StateLayout::accepted;
  if (is_circular) return StateLayout::circular;
  return is_front ? StateLayout::front : StateLayout::end;
}

void check_state(const TensorView& state, const TensorView& x, const UpdateTensors& t) {
  check_floating(kOp, "conv_state", state);
  check_device(kOp, "conv_state", state, x);
  check(state.rank == 3 && state.sizes[1] == x.sizes[1], kOp, ": conv_state must have shape (slots, ", x.sizes[1],
        ", state_len), got ", state.shape());
  const int64_t columns = state.sizes[2];
  check(columns >= t.history(), kOp, ": conv_state must have at least (K - 1) * dilation = ", t.history(),
        " columns, got ", columns);
  check(t.slots.exists() || state.sizes[0] == t.sequences, kOp, ": conv_state must have ", t.sequences,
        " slots, one per sequence, when conv_state_indices is None, got ", state.sizes[0]);
  if (t.layout == StateLayout::accepted && !t.is_packed()) {
    const int64_t needed = std::max<int64_t>(t.history() - 1, 0) + t.tokens;
    check(columns >= needed, kOp, ": conv_state must have at least ", needed, " columns for ", t.tokens,
          " tokens after the accepted ones, got ", columns);
  }
  check_written_once(kOp, "conv_state", state);
}

void check_slots(const std::optional<Tensor>& slots, int64_t sequences, const TensorView& x, UpdateTensors& t) {
  t.blocks = 1;
  if (!slots.has_value()) return;
  const TensorView view(*slots);
  check_index(kOp, "conv_state_indices", view, x);
  check((view.rank == 1 || view.rank == 2) && view.sizes[0] == sequences, kOp, ": conv_state_indices must have shape (",
        sequences, ",) or (", sequences, ", blocks), got ", view.shape());
  if (view.rank == 2) t.blocks = view.sizes[1];
}

void check_chain(const char* argument, Chain& chain, DType dtype) {
  check(!chain.program.has_cpp(), kOp, ": ", argument,
        " must have no cpp stage in the raw op, which has no linked form, got one");
  chain.program.set_precision(dtype, dtype);
}

// Checks that written tensors share no memory with tensors that are read.
void check_written(const Update& u, const TensorView& written, const char* name, bool may_be_x) {
  check_no_overlap(kOp, written, "x", TensorView(u.x), may_be_x, name);
  check_no_overlap(kOp, written, "weight", TensorView(u.weight), false, name);
  if (u.bias.has_value()) check_no_overlap(kOp, written, "bias", TensorView(*u.bias), false, name);
  for (const auto& [argument, index] : u.indices) {
    check_no_overlap(kOp, written, argument, TensorView(index), false, name);
  }
  for (const Chain* chain : {&u.pre, &u.post}) {
    for (const TensorView& operand : chain->operands) {
      check_no_overlap(kOp, written, "an operand", operand, false, name);
    }
  }
}

Update check_arguments(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                       const std::optional<Tensor>& bias, const std::optional<std::string>& activation,
                       const std::optional<Tensor>& cache_seqlens, const std::optional<Tensor>& conv_state_indices,
                       int64_t pad_slot_id, const std::optional<Tensor>& query_start_loc,
                       const std::optional<Tensor>& num_accepted_tokens, const std::string& state_at,
                       const std::optional<int64_t>& null_slot_id, int64_t dilation, const std::string& pre,
                       const OptionalTensors& pre_operands, const std::string& post,
                       const OptionalTensors& post_operands) {
  const TensorView input(x), kernel(weight), state(conv_state);
  const bool packed = query_start_loc.has_value();
  check_x(input, packed);
  check_taps(kOp, kernel, bias, dilation, input);
  UpdateTensors t{};
  t.taps = kernel.sizes[1];
  t.dilation = dilation;
  t.layout = layout_of(state_at, cache_seqlens.has_value(), num_accepted_tokens.has_value());
  t.channels = input.sizes[1];
  t.sequences = input.sizes[0];
  t.tokens = input.rank == 3 ? input.sizes[2] : 1;
  if (packed) {
    const TensorView starts(*query_start_loc);
    check_index(kOp, "query_start_loc", starts, input);
    check(starts.rank == 1 && starts.sizes[0] >= 1, kOp, ": query_start_loc must have shape (sequences + 1,), got ",
          starts.shape());
    t.sequences = starts.sizes[0] - 1;
    t.tokens = input.sizes[0];
  }
  check_one_each({"cache_seqlens", cache_seqlens}, t.sequences, input);
  check_one_each({"num_accepted_tokens", num_accepted_tokens}, t.sequences, input);
  check_slots(conv_state_indices, t.sequences, input, t);
  t.starts = indices_of(query_start_loc);
  t.slots = indices_of(conv_state_indices);
  t.lengths = indices_of(cache_seqlens);
  t.accepted = indices_of(num_accepted_tokens);
  t.pad_slot = pad_slot_id;
  t.null_slot = null_slot_id.value_or(kNoSlot);
  check_state(state, input, t);
  t.state = operand_of<3>(state);
  t.slot_count = state.sizes[0];
  t.columns = state.sizes[2];
  const std::vector<int64_t> sizes = sizes_of(input);
  Update u{.x = x,
           .conv_state = conv_state,
           .weight = weight,
           .bias = bias,
           .indices = {},
           .pre = Chain(kOp, "pre", pre, pre_operands, input, sizes),
           .post = Chain(kOp, "post", with_activation(kOp, activation, post), post_operands, input, sizes),
           .sizes = sizes,
           .strides = input.rank == 3 ? layout_strides(input, sizes, /*spatial=*/1) : contiguous_strides(sizes),
           .tensors = t};
  check_chain("pre", u.pre, input.dtype);
  check_chain("post", u.post, input.dtype);
  for (const IndexArgument& index :
       {IndexArgument{"cache_seqlens", cache_seqlens}, IndexArgument{"conv_state_indices", conv_state_indices},
        IndexArgument{"query_start_loc", query_start_loc}, IndexArgument{"num_accepted_tokens", num_accepted_tokens}}) {
    if (index.tensor.has_value()) u.indices.emplace_back(index.name, *index.tensor);
  }
  check_written(u, state, "conv_state", /*may_be_x=*/false);
  return u;
}

// Strides of a tensor of x's shape over (sequence, channel, token).
std::vector<int64_t> kernel_strides(const std::vector<int64_t>& strides, bool packed) {
  if (strides.size() == 3) return strides;
  return packed ? std::vector<int64_t>{0, strides[1], strides[0]} : std::vector<int64_t>{strides[0], strides[1], 0};
}

Operand<3> kernel_operand(const TensorView& tensor, bool packed) {
  return operand_of<3>(tensor, kernel_strides({tensor.strides, tensor.strides + tensor.rank}, packed));
}

UpdateParams params_of(const Update& u, const TensorView& output) {
  const bool packed = u.tensors.is_packed();
  UpdateParams params{};
  static_cast<UpdateTensors&>(params) = u.tensors;
  params.input = kernel_operand(TensorView(u.x), packed);
  params.output = kernel_operand(output, packed);
  params.weight = operand_of<2>(u.weight);
  params.bias = operand_of<1>(u.bias);
  const auto strides_in = [&](const Chain& chain) {
    return [&](std::size_t k) { return kernel_strides(chain.strides(k, u.sizes), packed); };
  };
  u.pre.fill(params.pre, params.pre_operands, strides_in(u.pre));
  u.post.fill(params.post, params.post_operands, strides_in(u.post));
  return params;
}

void run(const Update& u, const TensorView& output) {
  if (output.elements() == 0) return;
  launch(DeviceScope(kOp, output.device_index), params_of(u, output));
}

Tensor causal_conv1d_update(const Update& u) {
  const TensorView x(u.x);
  Tensor output = allocate(kOp, u.sizes, u.strides, x.dtype, x);
  aten::raise_version(kOp, u.conv_state, "conv_state");
  run(u, TensorView(output));
  return output;
}

void causal_conv1d_update_out(const Update& u, const Tensor& out) {
  const TensorView view(out), x(u.x);
  check_out(kOp, view, u.sizes, x.dtype, x);
  check_written(u, view, "out", /*may_be_x=*/true);
  check_no_overlap(kOp, view, "conv_state", TensorView(u.conv_state), /*may_be_same=*/false);
  aten::raise_version(kOp, u.conv_state, "conv_state");
  aten::raise_version(kOp, out);
  run(u, view);
}

#define SLUICE_CAUSAL_CONV1D_UPDATE_ARGUMENTS                                                                       \
  "Tensor x, Tensor(a!) conv_state, Tensor weight, Tensor? bias=None, str? activation=None, *, "                    \
  "Tensor? cache_seqlens=None, Tensor? conv_state_indices=None, int pad_slot_id=-1, Tensor? query_start_loc=None, " \
  "Tensor? num_accepted_tokens=None, str state_at=\"end\", int? null_slot_id=None, int dilation=1, str pre=\"\", "  \
  "Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None"

void define(Library& m) {
  m.def("causal_conv1d_update(" SLUICE_CAUSAL_CONV1D_UPDATE_ARGUMENTS ") -> Tensor");
  m.def("causal_conv1d_update_out(" SLUICE_CAUSAL_CONV1D_UPDATE_ARGUMENTS ", Tensor(b!) out) -> ()");
}

void implement(Library& m) {
  m.impl("causal_conv1d_update", TORCH_BOX((raw_op<check_arguments, causal_conv1d_update>)));
  m.impl("causal_conv1d_update_out", TORCH_BOX((raw_op<check_arguments, causal_conv1d_update_out>)));
}

}  // namespace

const Registration kCausalConv1dUpdate{define, implement};

}  // namespace sluice
