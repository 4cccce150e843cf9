#include "ops/convolution.h"

#include <array>

#include "kernels/conv1d/conv1d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#endif

namespace sluice {
namespace {

MethodChoice method_of(const Convolution& c) {
  return choose_method({.input_channels = c.input.size(1), .channels = c.sizes[1], .groups = c.groups}, c.schedule);
}

// Whether aten makes the sums, which it always does on the CPU; refuses a schedule that was forced for them.
bool goes_through_aten([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  const MethodChoice choice = method_of(c);
  const bool aten = choice.method == Conv1dMethod::aten;
  check(!aten || c.schedule.automatic, c.op, ": schedule must be auto here, because ", choice.reason, "; got ",
        name_of(c.schedule.schedule));
  return aten;
#else
  return true;
#endif
}

#ifdef SLUICE_CUDA_LIBRARY
Conv1dParams make_params(const Convolution& c, const TensorView& result) {
  const TensorView input(c.input), weight(c.weight);
  const std::vector<int64_t> sizes = sizes_of(input);
  Conv1dParams params{{
      .input = operand_of<3>(input),
      .output = operand_of<3>(result),
      .weight = operand_of<2>(weight, std::array{weight.strides[0], weight.strides[weight.rank - 1]}),
      .bias = operand_of<1>(c.bias),
      .history = operand_of<3>(c.history),
      .batch = c.sizes[0],
      .channels = c.sizes[1],
      .length = sizes[2],
      .output_length = c.sizes[2],
      .multiplier = static_cast<int>(c.sizes[1] / sizes[1]),
      .taps = static_cast<int>(weight.sizes[weight.rank - 1]),
      .stride = c.stride,
      .padding = c.padding,
      .dilation = c.dilation,
  }};
  c.pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return c.pre.strides(k, sizes); });
  c.post.fill(params.post, params.post_operands, [&](std::size_t k) { return c.post.strides(k, c.sizes); });
  return params;
}

// Nothing where no kernel has room for so many taps and none was asked for; else why the chains were not linked.
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& output, Run run) {
  const int index = output.device_index;
  const Conv1dParams params = make_params(c, output);
  const DeviceScope device(c.op, index);
  const Conv1dProblem problem = problem_of(params);
  const auto planned = [&](bool linked) {
    return plan_conv1d(problem, c.schedule, properties_of(c.op, index), linked);
  };
  Conv1dPlan plan = planned(true);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  check_plan(c.op, plan, c.schedule);
  Form form = choose_form(c.op, link_request(params, plan), device, output.elements(), run);
  if (form.kernel == nullptr) plan = planned(false);
  if (run == Run::prepare) return std::move(form.reason);
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, output);
  void* const memory = workspace.has_value() ? TensorView(*workspace).data : nullptr;
  device.check_launch(launch_conv1d(params, plan, form.kernel, memory, device.stream()));
  return std::move(form.reason);
}
#endif

// For what the pass of `pre` leaves.
Tensor allocate_like_input(const Convolution& c) {
  const TensorView input(c.input);
  const std::vector<int64_t> sizes = sizes_of(input);
  return allocate(c.op, sizes, layout_strides(input, sizes, /*spatial=*/1), input.dtype, input);
}

// aten's convolution after the pass of `pre`; `post` is still to come. Half types come back as float32 on the CPU,
// where aten does not promise to sum them in it.
Tensor convolve_with_aten(const Convolution& c) {
  const TensorView source(c.input);
  const bool on_cpu = source.device_type == aoti_torch_device_type_cpu();
  DType dtype = on_cpu && source.dtype != DType::float64 ? DType::float32 : source.dtype;
  // A depthwise sum is always full float32: on the GPU aten might take TF32 for it.
  if (!on_cpu && method_of(c).method == Conv1dMethod::depthwise) dtype = DType::float64;

  Tensor input = c.input;
  if (!c.pre.empty() && source.elements() > 0) {
    input = allocate_like_input(c);
    run_transform(c.op, source, TensorView(input), c.pre, ScheduleRequest{});
  }
  input = aten::to_dtype(input, dtype);
  int64_t padding = c.padding;
  if (c.history.has_value()) {
    input = aten::concatenate_last(aten::to_dtype(*c.history, dtype), input);
    padding = 0;
  } else if (c.padding != c.padding_right) {
    input = aten::pad_last(input, c.padding, c.padding_right);
    padding = 0;
  }
  Tensor weight = aten::to_dtype(c.weight, dtype);
  if (weight.dim() == 2) weight = aten::unsqueeze(weight, 1);
  return aten::convolution(input, weight, aten::to_dtype(c.bias, dtype), c.stride, padding, c.dilation, c.groups);
}

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

}  // namespace

void check_out_overlap(const Convolution& c, const char* input, const TensorView& out) {
  check_no_overlap(c.op, out, input, c.input);
  check_no_overlap(c.op, out, "weight", c.weight);
  check_no_overlap(c.op, out, "bias", c.bias);
  check_no_overlap(c.op, out, "initial_states", c.history);
  c.pre.check_no_overlap(c.op, out, "an operand of pre", /*may_be_same=*/false);
  c.post.check_no_overlap(c.op, out, "an operand of post", /*may_be_same=*/true);
}

void run_convolution(const Convolution& c, const Tensor& output) {
  const TensorView target(output);
  [[maybe_unused]] const bool through_aten = goes_through_aten(c);
  if (target.elements() == 0) return;
#ifdef SLUICE_CUDA_LIBRARY
  if (!through_aten && run_kernels(c, target, Run::now).has_value()) return;
#endif
  run_transform(c.op, TensorView(convolve_with_aten(c)), target, c.post, ScheduleRequest{});
}

Tensor convolve(const Convolution& c) {
  if (goes_through_aten(c) && !is_empty(c)) {
    Tensor result = convolve_with_aten(c);
    const TensorView view(result);
    if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
      if (!c.post.empty()) run_transform(c.op, view, view, c.post, ScheduleRequest{});
      return restrided(c.op, result, c.strides);
    }
    Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, view);
    run_transform(c.op, view, TensorView(output), c.post, ScheduleRequest{});
    return output;
  }
  Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, TensorView(c.input));
  run_convolution(c, output);
  return output;
}

std::string prepare_convolution(const Convolution& c) {
  [[maybe_unused]] const bool through_aten = goes_through_aten(c);
  if (is_empty(c)) return kEmptyResult;
  const TensorView input(c.input);
  const Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, input);
  const TensorView target(output);
#ifdef SLUICE_CUDA_LIBRARY
  if (!through_aten) {
    if (const auto reason = run_kernels(c, target, Run::prepare)) return *reason;
  }
#endif
  // Passes of their own in front of aten's convolution and behind it.
  std::string reason;
  if (!c.pre.empty()) {
    reason = run_transform(c.op, input, TensorView(allocate_like_input(c)), c.pre, ScheduleRequest{}, Run::prepare);
  }
  if (c.post.empty()) return c.pre.empty() ? kNoChain : reason;
  const std::string behind = run_transform(c.op, target, target, c.post, ScheduleRequest{}, Run::prepare);
  return reason.empty() ? behind : reason;
}

}  // namespace sluice
