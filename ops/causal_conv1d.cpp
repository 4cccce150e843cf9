// causal_conv1d: arguments to a Convolution with a history; and the states that it leaves behind.
#include "kernels/causal_conv1d/causal_conv1d.h"
#include "ops/causal.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/launch.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/convolution.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/causal_conv1d/launch.h"
#endif

namespace sluice {
namespace {

constexpr const char* kOp = "causal_conv1d";

void check_states(const TensorView& states, const char* argument, const TensorView& x, int64_t width) {
  check_floating(kOp, argument, states);
  check_device(kOp, argument, states, x);
  const std::vector<int64_t> sizes = {x.sizes[0], x.sizes[1], width};
  check(states.has_sizes(sizes), kOp, ": ", argument,
        " must have shape (batch, channels, width - 1) = ", ShapeText{sizes}, ", got ", states.shape());
}

Convolution check_arguments(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                            const std::optional<std::string>& activation, const std::optional<Tensor>& initial_states,
                            const std::string& post, const OptionalTensors& post_operands, const std::string& schedule,
                            const std::optional<int64_t>& depth) {
  const TensorView view(x), kernel(weight);
  check_floating(kOp, "x", view);
  check_floating(kOp, "weight", kernel);
  check(view.rank == 3, kOp, ": x must have shape (batch, channels, length), got ", view.shape());
  check_taps(kOp, kernel, bias, view);
  const int64_t channels = view.sizes[1], width = kernel.sizes[1];
  if (initial_states.has_value()) check_states(TensorView(*initial_states), "initial_states", view, width - 1);
  const ScheduleRequest request = check_schedule(kOp, schedule, depth);
  const std::vector<int64_t> sizes = sizes_of(view);
  Chain none(kOp, "pre", "", std::nullopt, view, sizes);
  Chain after(kOp, "post", with_activation(kOp, activation, post), post_operands, view, sizes);
  after.program.set_precision(view.dtype, view.dtype);
  return {.op = kOp,
          .input = x,
          .weight = weight,
          .bias = bias,
          // A width of 1 has no states; an empty tensor of them is not a history.
          .history = width > 1 ? initial_states : std::nullopt,
          .padding = width - 1,
          .groups = channels,
          .pre = std::move(none),
          .post = std::move(after),
          .dtype = view.dtype,
          .schedule = request,
          .sizes = sizes,
          .strides = layout_strides(view, sizes, /*spatial=*/1)};
}

void check_result(const Convolution& c, const TensorView& out) {
  check_out(kOp, out, c.sizes, c.dtype, TensorView(c.input));
  check_out_overlap(c, "x", out);
}

void causal_conv1d_out(const Convolution& c, const Tensor& out) {
  check_result(c, TensorView(out));
  aten::raise_version(kOp, out);
  run_convolution(c, out);
}

std::string ask(const Convolution& c, const std::optional<Tensor>& out, const Question& question) {
  if (!out.has_value()) return ask_convolution(c, nullptr, question);
  const TensorView view(*out);
  check_result(c, view);
  return ask_convolution(c, &view, question);
}

std::string prepare_causal_conv1d(const Convolution& c, const std::optional<Tensor>& out) {
  return ask(c, out, {.run = Run::prepare});
}

#ifndef SLUICE_CUDA_LIBRARY
std::string plan_causal_conv1d(const Convolution& c, const std::optional<Tensor>& out, bool linked,
                               const std::vector<int64_t>& device) {
  return ask(c, out, plan_question(kOp, linked, device, c.sizes));
}
#endif

FinalStatesParams make_params(const TensorView& x, int64_t width, const std::optional<Tensor>& initial_states,
                              const TensorView& result) {
  return {
      .input = operand_of<3>(x),
      .history = operand_of<3>(initial_states),
      .states = operand_of<3>(result),
      .batch = x.sizes[0],
      .channels = x.sizes[1],
      .length = x.sizes[2],
      .width = width,
  };
}

void run_final_states(const TensorView& x, int64_t width, const std::optional<Tensor>& initial_states,
                      const TensorView& states) {
  if (states.elements() == 0) return;
  const FinalStatesParams params = make_params(x, width, initial_states, states);
#ifdef SLUICE_CUDA_LIBRARY
  const DeviceScope device(kOp, x.device_index);
  device.check_launch(launch_final_states(params, device.stream()));
#else
  final_states_cpu(params);
#endif
}

// `width` is the convolution's width less one.
void check_final_states(const TensorView& x, int64_t width, const std::optional<Tensor>& initial_states) {
  check_floating(kOp, "x", x);
  check(x.rank == 3, kOp, ": x must have shape (batch, channels, length), got ", x.shape());
  check(width >= 0, kOp, ": width must not be negative, got ", width);
  if (initial_states.has_value()) check_states(TensorView(*initial_states), "initial_states", x, width);
}

Tensor final_states(const Tensor& x, int64_t width, const std::optional<Tensor>& initial_states) {
  const TensorView view(x);
  check_final_states(view, width, initial_states);
  const std::vector<int64_t> sizes = {view.sizes[0], view.sizes[1], width};
  Tensor states = allocate(kOp, sizes, contiguous_strides(sizes), view.dtype, view);
  run_final_states(view, width, initial_states, TensorView(states));
  return states;
}

// `result`: that of the convolution, where the caller gave the memory of both.
void check_final_states_out(const Tensor& x, int64_t width, const std::optional<Tensor>& initial_states,
                            const Tensor& out, const std::optional<Tensor>& result) {
  constexpr const char* kWritten = "final_states_out";
  const TensorView view(x), states(out);
  check_final_states(view, width, initial_states);
  check_states(states, kWritten, view, width);
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

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("causal_conv1d", TORCH_BOX((raw_op<check_arguments, convolve>)));
  m.impl("causal_conv1d_out", TORCH_BOX((raw_op<check_arguments, causal_conv1d_out>)));
  m.impl("_prepare_causal_conv1d", TORCH_BOX((raw_op<check_arguments, prepare_causal_conv1d>)));
  m.impl("causal_conv1d_final_states", TORCH_BOX(&final_states));
  m.impl("causal_conv1d_final_states_out", TORCH_BOX(&final_states_out));
}

#ifndef SLUICE_CUDA_LIBRARY
#define SLUICE_CAUSAL_CONV1D_ARGUMENTS                                                                 \
  "Tensor x, Tensor weight, Tensor? bias=None, str? activation=None, Tensor? initial_states=None, *, " \
  "str post=\"\", Tensor[]? post_operands=None, str schedule=\"auto\", int? depth=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("causal_conv1d(" SLUICE_CAUSAL_CONV1D_ARGUMENTS ") -> Tensor");
  m.def("_prepare_causal_conv1d(" SLUICE_CAUSAL_CONV1D_ARGUMENTS ", Tensor? out=None) -> str");
  m.def("_plan_causal_conv1d(" SLUICE_CAUSAL_CONV1D_ARGUMENTS ", Tensor? out=None, bool linked, int[] device) -> str");
  m.def("causal_conv1d_out(" SLUICE_CAUSAL_CONV1D_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("causal_conv1d_final_states(Tensor x, int width, Tensor? initial_states=None) -> Tensor");
  m.def("causal_conv1d_final_states_out(Tensor x, int width, Tensor? initial_states=None, *, Tensor(a!) out) -> ()");
  // Before anything is written: the op above is called behind the convolution.
  m.def(
      "_check_causal_conv1d_final_states_out(Tensor x, int width, Tensor? initial_states, Tensor out, Tensor? result) "
      "-> ()");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_plan_causal_conv1d", TORCH_BOX((raw_op<check_arguments, plan_causal_conv1d>)));
  m.impl("_check_causal_conv1d_final_states_out", TORCH_BOX(&check_final_states_out));
}
#endif

}  // namespace sluice
