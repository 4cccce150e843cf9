// causal_conv1d with sequences that begin anywhere, or states in cache slots: arguments to a SequencesParams.
#include <utility>

#include "ops/causal.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/common/raw_op.h"
#include "ops/ops.h"

namespace sluice {
namespace {

constexpr const char* kOp = "causal_conv1d";

// A checked call. `states`: the initial states; `sequences` is complete except for the final states.
struct Call {
  Convolution convolution;
  NamedTensors indices;
  std::optional<Tensor> states;
  Sequences sequences;
};

void check_sequences(Call& call, const std::optional<Tensor>& seq_idx, const std::optional<Tensor>& cu_seqlens) {
  const TensorView x(call.convolution.input);
  Sequences& s = call.sequences;
  s.count = x.sizes[0];
  if (seq_idx.has_value()) {
    const TensorView ids(*seq_idx);
    check_index(kOp, "seq_idx", ids, x);
    check(!cu_seqlens.has_value(), kOp, ": seq_idx must be None when cu_seqlens is given, got both");
    check(ids.has_sizes({x.sizes[0], x.sizes[2]}), kOp, ": seq_idx must have shape (", x.sizes[0], ", ", x.sizes[2],
          "), got ", ids.shape());
    call.indices.emplace_back("seq_idx", *seq_idx);
  }
  if (cu_seqlens.has_value()) {
    const TensorView starts(*cu_seqlens);
    check_index(kOp, "cu_seqlens", starts, x);
    check(starts.rank == 1 && starts.sizes[0] >= 1, kOp, ": cu_seqlens must have shape (sequences + 1,), got ",
          starts.shape());
    check(x.sizes[0] == 1, kOp, ": x must have shape (1, channels, tokens) with cu_seqlens, got ", x.shape());
    s.count = starts.sizes[0] - 1;
    call.indices.emplace_back("cu_seqlens", *cu_seqlens);
  }
  s.ids = indices_of(seq_idx);
  s.starts = indices_of(cu_seqlens);
  s.slot_count = s.count;
  s.pad_slot = s.null_slot = kNoSlot;
  s.columns = call.convolution.padding;
}

Call check_arguments(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                     const std::optional<std::string>& activation, const std::optional<Tensor>& initial_states,
                     const std::optional<Tensor>& seq_idx, const std::optional<Tensor>& cu_seqlens, int64_t dilation,
                     const std::string& pre, const OptionalTensors& pre_operands, const std::string& post,
                     const OptionalTensors& post_operands) {
  Call call{causal_convolution(kOp, {x, weight, bias, activation, dilation, pre, pre_operands, post, post_operands}),
            {},
            initial_states,
            {}};
  check_sequences(call, seq_idx, cu_seqlens);
  if (initial_states.has_value()) {
    const TensorView states(*initial_states);
    check_states(kOp, states, "initial_states", TensorView(x), call.sequences.count, call.sequences.columns);
    if (call.sequences.columns > 0) call.sequences.before = operand_of<3>(states);
  }
  return call;
}

// Checks that written tensors share no memory with tensors that are read.
void check_written(const Call& call, const TensorView& written, const char* name, bool may_be_operand) {
  const Convolution& c = call.convolution;
  const auto check_apart = [&](const char* argument, const std::optional<Tensor>& tensor) {
    if (tensor.has_value()) check_no_overlap(kOp, written, argument, TensorView(*tensor), false, name);
  };
  check_apart("x", c.input);
  check_apart("weight", c.weight);
  check_apart("bias", c.bias);
  for (const auto& [argument, index] : call.indices) check_apart(argument, index);
  for (const TensorView& operand : c.pre.operands) {
    check_no_overlap(kOp, written, "an operand of pre", operand, false, name);
  }
  for (const TensorView& operand : c.post.operands) {
    check_no_overlap(kOp, written, "an operand of post", operand, may_be_operand, name);
  }
}

void check_result(const Call& call, const TensorView& out) {
  const Convolution& c = call.convolution;
  check_out(kOp, out, c.sizes, c.dtype, TensorView(c.input));
  check_written(call, out, "out", /*may_be_operand=*/true);
  if (call.states.has_value()) check_no_overlap(kOp, out, "the states", *call.states);
}

// `out` and `final_states_out`: the caller's memory for results, if given.
void check_sequences_out(const Call& call, const std::optional<Tensor>& out,
                         const std::optional<Tensor>& final_states_out) {
  constexpr const char* kWritten = "final_states_out";
  if (out.has_value()) check_result(call, TensorView(*out));
  if (!final_states_out.has_value()) return;
  const TensorView states(*final_states_out);
  check_states(kOp, states, kWritten, TensorView(call.convolution.input), call.sequences.count, call.sequences.columns);
  check_written_once(kOp, kWritten, states);
  check_written(call, states, kWritten, /*may_be_operand=*/false);
  if (out.has_value()) check_no_overlap(kOp, states, "out", TensorView(*out), false, kWritten);
  // A state is read before it is written.
  if (call.states.has_value()) {
    check_no_overlap(kOp, states, "initial_states", TensorView(*call.states), /*may_be_same=*/true, kWritten);
  }
}

void check_paged_out(const Call& call, const std::optional<Tensor>& out) {
  if (out.has_value()) check_result(call, TensorView(*out));
}

// The sequences' kernels interpret chains, and an interpreter has no cpp stages.
void check_interpreted(const char* argument, const Chain& chain) {
  check(!chain.program.has_cpp(), kOp, ": ", argument,
        " must have no cpp stage in the raw op, which has no linked form, got one");
}

// `states`: the final states.
void run(const Call& call, const TensorView& output, const std::optional<TensorView>& states) {
  check_interpreted("pre", call.convolution.pre);
  check_interpreted("post", call.convolution.post);
  if (output.sizes[1] == 0) return;  // depthwise_params divides by the channels
  SequencesParams params{depthwise_params(call.convolution, output), call.sequences};
  if (states.has_value() && states->elements() > 0) params.sequences.after = operand_of<3>(*states);
  if (output.elements() == 0 && !params.sequences.after.exists()) return;
  launch(DeviceScope(kOp, output.device_index), params);
}

std::vector<int64_t> state_sizes(const Call& call) {
  return {call.sequences.count, call.convolution.sizes[1], call.sequences.columns};
}

std::vector<Tensor> causal_conv1d_sequences(const Call& call, bool return_final_states) {
  const Convolution& c = call.convolution;
  const TensorView x(c.input);
  std::vector<Tensor> results{allocate(kOp, c.sizes, c.strides, c.dtype, x)};
  std::optional<TensorView> states;
  if (return_final_states) {
    const std::vector<int64_t> sizes = state_sizes(call);
    results.push_back(allocate(kOp, sizes, contiguous_strides(sizes), c.dtype, x));
    states.emplace(results.back());
  }
  run(call, TensorView(results.front()), states);
  return results;
}

void causal_conv1d_sequences_out(const Call& call, const Tensor& out, const std::optional<Tensor>& final_states_out) {
  check_sequences_out(call, out, final_states_out);
  std::optional<TensorView> states;
  if (final_states_out.has_value()) {
    states.emplace(*final_states_out);
    aten::raise_version(kOp, *final_states_out, "final_states_out");
  }
  aten::raise_version(kOp, out);
  run(call, TensorView(out), states);
}

// The states are cache slots.
Call check_paged_arguments(const Tensor& x, const Tensor& state_cache, const Tensor& weight,
                           const std::optional<Tensor>& bias, const std::optional<std::string>& activation,
                           const std::optional<Tensor>& seq_idx, const std::optional<Tensor>& cu_seqlens,
                           const std::optional<Tensor>& cache_indices, const std::optional<Tensor>& has_initial_state,
                           int64_t pad_slot_id, const std::optional<int64_t>& null_slot_id, int64_t dilation,
                           const std::string& pre, const OptionalTensors& pre_operands, const std::string& post,
                           const OptionalTensors& post_operands) {
  Call call{causal_convolution(kOp, {x, weight, bias, activation, dilation, pre, pre_operands, post, post_operands}),
            {},
            state_cache,
            {}};
  check_sequences(call, seq_idx, cu_seqlens);
  const TensorView input(x), cache(state_cache);
  Sequences& s = call.sequences;
  const std::string least = "(K - 1) * dilation = " + std::to_string(s.columns);
  check_cache(kOp,
              {.name = "state_cache",
               .cache = state_cache,
               .channels = input.sizes[1],
               .least = least,
               .columns = s.columns,
               .indices = cache_indices,
               .has_initial_state = has_initial_state,
               .pad_slot = pad_slot_id,
               .null_slot = null_slot_id},
              input, s, call.indices);
  check_written(call, cache, "state_cache", /*may_be_operand=*/false);
  return call;
}

Tensor causal_conv1d_paged(const Call& call) {
  const Convolution& c = call.convolution;
  Tensor output = allocate(kOp, c.sizes, c.strides, c.dtype, TensorView(c.input));
  aten::raise_version(kOp, *call.states, "state_cache");
  run(call, TensorView(output), TensorView(*call.states));
  return output;
}

void causal_conv1d_paged_out(const Call& call, const Tensor& out) {
  check_paged_out(call, out);
  aten::raise_version(kOp, *call.states, "state_cache");
  aten::raise_version(kOp, out);
  run(call, TensorView(out), TensorView(*call.states));
}

#define SLUICE_CAUSAL_CHAINS \
  "int dilation=1, str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None"
#define SLUICE_SEQUENCES_ARGUMENTS                                                                     \
  "Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, Tensor? initial_states=None, *, " \
  "Tensor? seq_idx=None, Tensor? cu_seqlens=None, " SLUICE_CAUSAL_CHAINS
#define SLUICE_PAGED_ARGUMENTS                                                                                  \
  "Tensor weight, Tensor? bias=None, str? activation=None, *, "                                                 \
  "Tensor? seq_idx=None, Tensor? cu_seqlens=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, " \
  "int pad_slot_id=-1, int? null_slot_id=None, " SLUICE_CAUSAL_CHAINS

void define(Library& m) {
  m.def("causal_conv1d_sequences(" SLUICE_SEQUENCES_ARGUMENTS ", bool return_final_states=False) -> Tensor[]");
  m.def("causal_conv1d_sequences_out(" SLUICE_SEQUENCES_ARGUMENTS
        ", Tensor(a!) out, Tensor(b!)? final_states_out=None) -> ()");
  m.def("causal_conv1d_paged(Tensor x, Tensor(a!) state_cache, " SLUICE_PAGED_ARGUMENTS ") -> Tensor");
  m.def("causal_conv1d_paged_out(Tensor x, Tensor(a!) state_cache, " SLUICE_PAGED_ARGUMENTS ", Tensor(b!) out) -> ()");
  // For calls whose results go through other memory first: all checks of the ops above, without writing.
  m.def("_check_causal_conv1d_sequences(" SLUICE_SEQUENCES_ARGUMENTS
        ", Tensor? out=None, Tensor? final_states_out=None) -> ()");
  m.def("_check_causal_conv1d_paged(Tensor x, Tensor state_cache, " SLUICE_PAGED_ARGUMENTS ", Tensor? out=None) -> ()");
}

void implement(Library& m) {
  m.impl("causal_conv1d_sequences", TORCH_BOX((raw_op<check_arguments, causal_conv1d_sequences>)));
  m.impl("causal_conv1d_sequences_out", TORCH_BOX((raw_op<check_arguments, causal_conv1d_sequences_out>)));
  m.impl("causal_conv1d_paged", TORCH_BOX((raw_op<check_paged_arguments, causal_conv1d_paged>)));
  m.impl("causal_conv1d_paged_out", TORCH_BOX((raw_op<check_paged_arguments, causal_conv1d_paged_out>)));
  m.impl("_check_causal_conv1d_sequences", TORCH_BOX((raw_op<check_arguments, check_sequences_out>)));
  m.impl("_check_causal_conv1d_paged", TORCH_BOX((raw_op<check_paged_arguments, check_paged_out>)));
}

}  // namespace

const Registration kCausalConv1dSequences{define, implement};

}  // namespace sluice
