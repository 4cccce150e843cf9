// causal_conv1d: arguments to a Convolution with a history, and the final states.
#include "ops/causal.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/ops.h"

namespace sluice {
namespace {

constexpr char kOp[] = "causal_conv1d";

bool has_other_history(const Convolution& c) {
  return c.history.has_value() && TensorView(*c.history).dtype != c.dtype;
}

Convolution check_arguments(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                            const std::optional<std::string>& activation, const std::optional<Tensor>& initial_states,
                            int64_t dilation, const std::string& pre, const OptionalTensors& pre_operands,
                            const std::string& post, const OptionalTensors& post_operands, const std::string& schedule,
                            const std::optional<int64_t>& depth) {
  Convolution c =
      causal_convolution(kOp, {x, weight, bias, activation, dilation, pre, pre_operands, post, post_operands});
  if (initial_states.has_value()) {
    const TensorView view(x);
    check_states(kOp, TensorView(*initial_states), "initial_states", view, view.sizes[0], c.padding);
    if (c.padding > 0) c.history = initial_states;  // an empty tensor of states is not a history
  }
  c.schedule = check_schedule(kOp, schedule, depth);
  if (has_other_history(c)) {
    const DtypeText found = name_of(TensorView(*initial_states).scalar_type);
    check(schedule == "auto" && !depth.has_value(), kOp,
          ": initial_states must have x's dtype with a schedule or a depth, got ", found);
    check(!c.pre.program.has_cpp() && !c.post.program.has_cpp(), kOp,
          ": initial_states must have x's dtype with a cpp stage in the raw op, got ", found);
  }
  return c;
}

void check_result(const Convolution& c, const TensorView& out) {
  check_out(kOp, out, c.sizes, c.dtype, TensorView(c.input));
  check_out_overlap(c, "x", out);
}

// On a GPU the kernels of rows would round a history of another dtype: they read it as they read the input.
bool runs_as_sequences(const Convolution& c) { return has_other_history(c) && !TensorView(c.input).is_cpu(); }

// Each row is a sequence.
void run_rows(const Convolution& c, const TensorView& output) {
  if (output.elements() == 0) return;
  SequencesParams params{depthwise_params(c, output), {}};
  params.convolution.history = {};
  params.sequences.count = params.sequences.slot_count = output.sizes[0];
  params.sequences.before = operand_of<3>(*c.history);
  params.sequences.columns = c.padding;
  launch(DeviceScope(kOp, output.device_index), params);
}

Tensor causal_conv1d(const Convolution& c) {
  if (!runs_as_sequences(c)) return convolve(c);
  Tensor output = allocate(kOp, c.sizes, c.strides, c.dtype, TensorView(c.input));
  run_rows(c, TensorView(output));
  return output;
}

void causal_conv1d_out(const Convolution& c, const Tensor& out) {
  check_result(c, TensorView(out));
  aten::raise_version(kOp, out);
  if (runs_as_sequences(c)) return run_rows(c, TensorView(out));
  run_convolution(c, out);
}

std::string answer(const Convolution& c, const std::optional<Tensor>& out, const CallMode& mode) {
  check_planned(kOp, mode, c.sizes);
  if (!out.has_value()) return prepare_or_plan_convolution(c, nullptr, mode);
  const TensorView view(*out);
  check_result(c, view);
  return prepare_or_plan_convolution(c, &view, mode);
}

// `width`: the columns of the history, and so of the states.
void check_final_states(const TensorView& x, int64_t width, const std::optional<Tensor>& initial_states) {
  check_floating(kOp, "x", x);
  check(x.rank == 3, kOp, ": x must have shape (batch, channels, length), got ", x.shape());
  check(width >= 0, kOp, ": width must not be negative, got ", width);
  if (!initial_states.has_value()) return;
  check_states(kOp, TensorView(*initial_states), "initial_states", x, x.sizes[0], width);
}

// Each row is a sequence, and there is no convolution.
void run_final_states(const TensorView& x, int64_t width, const std::optional<Tensor>& initial_states,
                      const TensorView& states) {
  SequencesParams params{};
  Conv1dParams& rows = params.convolution;
  rows.input = operand_of<3>(x);
  rows.batch = x.sizes[0];
  rows.channels = x.sizes[1];
  rows.length = x.sizes[2];
  rows.padding = width;
  params.sequences.count = params.sequences.slot_count = rows.batch;
  params.sequences.before = operand_of<3>(initial_states);
  params.sequences.after = operand_of<3>(states);
  params.sequences.columns = width;
  launch_states(DeviceScope(kOp, x.device_index), params);
}

Tensor final_states(const Tensor& x, int64_t width, const std::optional<Tensor>& initial_states) {
  const TensorView view(x);
  check_final_states(view, width, initial_states);
  const std::vector<int64_t> sizes = {view.sizes[0], view.sizes[1], width};
  Tensor states = allocate(kOp, sizes, contiguous_strides(sizes), view.dtype, view);
  run_final_states(view, width, initial_states, TensorView(states));
  return states;
}

// `result`: the convolution's, if the caller gave the memory of both.
void check_final_states_out(const Tensor& x, int64_t width, const std::optional<Tensor>& initial_states,
                            const Tensor& out, const std::optional<Tensor>& result) {
  constexpr const char* kWritten = "final_states_out";
  const TensorView view(x), states(out);
  check_final_states(view, width, initial_states);
  check_states(kOp, states, kWritten, view, view.sizes[0], width);
  check_written_once(kOp, kWritten, states);
  check_no_overlap(kOp, states, "x", view, /*may_be_same=*/false, kWritten);
  if (initial_states.has_value()) {
    // Element j of the new states reads a later one of the old: only states that are all x may replace them.
    const bool may_be_same = view.sizes[2] >= width;
    check_no_overlap(kOp, states, "initial_states", TensorView(*initial_states), may_be_same, kWritten);
  }
  if (result.has_value()) check_no_overlap(kOp, states, "out", TensorView(*result), /*may_be_same=*/false, kWritten);
}

void final_states_out(const Tensor& x, int64_t width, const std::optional<Tensor>& initial_states, const Tensor& out) {
  check_final_states_out(x, width, initial_states, out, std::nullopt);
  aten::raise_version(kOp, out);
  run_final_states(TensorView(x), width, initial_states, TensorView(out));
}

constexpr char kArguments[] =
    "Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, Tensor? initial_states=None, *, "
    "int dilation=1, str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", "
    "Tensor[]? post_operands=None, str schedule=\"auto\", int? depth=None";

using CausalEntries = Entries<kOp, kArguments, check_arguments, causal_conv1d, causal_conv1d_out, answer>;

void define(Library& m) {
  CausalEntries::define(m);
  m.def("causal_conv1d_final_states(Tensor x, int width, Tensor? initial_states=None) -> Tensor");
  m.def("causal_conv1d_final_states_out(Tensor x, int width, Tensor? initial_states=None, *, Tensor(a!) out) -> ()");
  // Called before anything is written; the op above is called after the convolution.
  m.def(
      "_check_causal_conv1d_final_states_out(Tensor x, int width, Tensor? initial_states, Tensor out, Tensor? result) "
      "-> ()");
}

void implement(Library& m) {
  CausalEntries::implement(m);
  m.impl("causal_conv1d_final_states", TORCH_BOX(&final_states));
  m.impl("causal_conv1d_final_states_out", TORCH_BOX(&final_states_out));
}

void implement_everywhere(Library& m) {
  CausalEntries::implement_everywhere(m);
  m.impl("_check_causal_conv1d_final_states_out", TORCH_BOX(&check_final_states_out));
}

}  // namespace

const Registration kCausalConv1d{define, implement, implement_everywhere};

}  // namespace sluice
