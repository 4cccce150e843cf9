#include "ops/convolution.h"

#include <array>

#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv_transpose1d/conv_transpose1d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/link.h"
#include "ops/common/plan_text.h"
#include "ops/convolution_aten.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#include "kernels/conv1d/link.h"
#else
#include "ops/convolution_cpu.h"
#endif

namespace sluice {
namespace {

constexpr Question kCompute{};
constexpr AtenReason kApart("the weight's output channels are not equally far apart");

// A weight of a group's input channels, and packed where it comes so.
DenseTensors dense_tensors(const Convolution& c) {
  const TensorView weight(c.weight);
  const int output = c.is_transposed ? 1 : 0, input = 1 - output;
  const bool is_grouped = c.groups != 1;
  if (weight.rank != 3 || (is_grouped && (c.is_transposed || weight.sizes[input] == 1))) return {};
  return {.weight = operand_of<3>(weight, std::array{weight.strides[output], weight.strides[input], weight.strides[2]}),
          .input_channels = weight.sizes[input],
          .groups = c.groups,
          .packed = c.packed.has_value() ? TensorView(*c.packed).data : nullptr};
}

// From an output channel of a depthwise convolution to the next one; nothing where they are not equally far apart.
std::optional<int64_t> channel_stride(const Convolution& c) {
  const TensorView weight(c.weight);
  if (!c.is_transposed || weight.sizes[1] == 1) return weight.strides[0];
  const bool merges = weight.sizes[0] == 1 || weight.strides[0] == weight.sizes[1] * weight.strides[1];
  return merges ? std::optional(weight.strides[1]) : std::nullopt;
}

// The convolution as a kernel takes it, a transposed one's phases from; only depthwise ones have a `multiplier`.
Conv1dParams make_params(const Convolution& c, const TensorView& result) {
  const TensorView input(c.input), weight(c.weight);
  const std::vector<int64_t> sizes = sizes_of(input);
  Conv1dParams params{{
      .input = operand_of<3>(input),
      .output = operand_of<3>(result),
      .weight = operand_of<2>(weight, std::array{channel_stride(c).value_or(0), weight.strides[weight.rank - 1]}),
      .bias = operand_of<1>(c.bias),
      .history = operand_of<3>(c.history),
      .batch = c.sizes[0],
      .channels = c.sizes[1],
      .length = sizes[2],
      .output_length = c.sizes[2],
      .multiplier = c.groups == sizes[1] ? static_cast<int>(c.sizes[1] / sizes[1]) : 1,
      .taps = static_cast<int>(weight.sizes[weight.rank - 1]),
      .stride = c.stride,
      .padding = c.padding,
      .dilation = c.dilation,
  }};
  params.dense = dense_tensors(c);
  c.pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return c.pre.strides(k, sizes); });
  c.post.fill(params.post, params.post_operands, [&](std::size_t k) { return c.post.strides(k, c.sizes); });
  return params;
}

Conv1dProblem make_problem(const Convolution& c, const Conv1dParams& params) {
  Conv1dProblem problem = problem_of(params);  // as if it were depthwise
  problem.input_channels = c.input.size(1);
  problem.groups = c.groups;
  return problem;
}

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// What a plan has to say of itself. `in_passes`: its chains are not linked.
std::string detail_of(const Conv1dPlan& plan, const Interleave& interleave, int64_t phases, bool in_passes) {
  std::string detail = describe(plan);
  if (plan.which == Conv1dMethod::dense && interleave.exists()) {
    detail += "; channels of " + std::to_string(interleave.phases) + " output phases, interleaved as they are stored";
  }
  if (plan.which == Conv1dMethod::dense && in_passes) detail += "; chains in passes of their own";
  if (phases > 1) detail += (detail.empty() ? "" : "; ") + std::to_string(phases) + " output phases, a launch each";
  return detail;
}

void check_forced(const Convolution& c, const char* reason_for_aten) {
  check(c.schedule.automatic, c.op, ": schedule must be auto here, because ", reason_for_aten, "; got ",
        name_of(c.schedule.schedule));
}

// A result without elements takes no kernel, but a schedule that does not suit the convolution is refused all the same.
void check_empty([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  if (!is_depthwise(c)) check_forced(c, kForcedReason);
#endif
}

template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const Question& question,
                                       const Output& output);

#ifdef SLUICE_CUDA_LIBRARY
// What a dense kernel without its chains computes, between passes of them: the bits of the linked one, because the sums
// between are not rounded.
void run_in_passes(const Convolution& c, const TensorView& target) {
  Convolution plain = c;
  plain.input = input_behind_pre(c);
  plain.pre.clear();
  plain.post.clear();
  const auto run = [&](const TensorView& output) {
    const bool done = run_kernels(plain, output, kCompute, [&] { return output; }).has_value();
    check(done, c.op, ": the kernel that has room with its chains has none without them");
  };
  if (c.post.empty()) return run(target);
  plain.dtype = DType::float32;
  // As the result lies: which transposed convolutions have a kernel is a matter of that.
  const std::vector<int64_t> strides = c.is_transposed ? layout_strides(target, c.sizes, /*spatial=*/1) : c.strides;
  const Tensor sums = allocate(c.op, c.sizes, strides, plain.dtype, target);
  run(TensorView(sums));
  run_transform(c.op, TensorView(sums), target, c.post, ScheduleRequest{});
}
#endif

// The one road to a kernel of sluice's own, whatever is asked: the problem, its plan, and then the launch into what
// `output` gives, the link, or the text. Nothing where aten makes the sums; else why the chains were not linked, or the
// text, which says so too. `result` is the output, or stands for it, and `params` are all of it or one of `phases`.
template <class Output>
std::optional<std::string> run_problem(const Convolution& c, Conv1dParams& params, const TensorView& result,
                                       const Question& question, [[maybe_unused]] const Output& output,
                                       int64_t phases = 1) {
  const Conv1dProblem problem = make_problem(c, params);
  const bool chained = !c.pre.empty() || !c.post.empty();
  const auto planned = [&](const DeviceProperties& device, bool linked) {
    const Conv1dPlan plan = plan_conv1d(problem, c.schedule, device, linked);
    if (plan.which == Conv1dMethod::aten) {
      check_forced(c, plan.reason);
    } else {
      check_plan(c.op, plan, c.schedule);
    }
    return plan;
  };
  if (question.explains()) {
    const Conv1dPlan plan = planned(question.device, chained && question.linked);
    return plan_text(plan, question, chained, result.elements(),
                     detail_of(plan, params.interleave, phases, chained && !question.linked));
  }
  // The params may be of a phase, which begins behind the result's first element.
  [[maybe_unused]] const auto set_output = [&] {
    const TensorView target = output();
    const auto offset = static_cast<char*>(params.output.data) - static_cast<char*>(result.data);
    params.output.data = static_cast<char*>(target.data) + offset;
    return target;
  };
#ifdef SLUICE_CUDA_LIBRARY
  const DeviceScope device(c.op, result.device_index);
  const DeviceProperties& properties = properties_of(c.op, result.device_index);
  Conv1dPlan plan = planned(properties, chained);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  Form form{.reason = kNoChain};
  if (chained) {
    form = choose_form(c.op, link_request(params, plan), device, result.elements(), question.run);
    if (form.kernel == nullptr) plan = planned(properties, false);
    if (plan.which == Conv1dMethod::aten) return std::nullopt;
  }
  if (!question.computes()) return form.why();
  const TensorView target = set_output();
  if (plan.which == Conv1dMethod::dense && chained && form.kernel == nullptr) {
    run_in_passes(c, target);
    return std::string();
  }
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, target);
  void* const memory = workspace.has_value() ? TensorView(*workspace).data : nullptr;
  device.check_launch(launch_conv1d(params, plan, form.kernel, memory, device.stream()));
  return std::string();
#else
  c.pre.check_interpreted(c.op);
  c.post.check_interpreted(c.op);
  if (!is_depthwise(c)) return std::nullopt;
  if (!question.computes()) return chained ? kOnCpu : kNoChain;
  set_output();
  run_depthwise_on_cpu(params);
  return std::string();
#endif
}

// A transposed convolution that no kernel of sluice's is asked for.
std::optional<std::string> leave_to_aten(const Convolution& c, const char* reason, const TensorView& result,
                                         const Question& question) {
#ifndef SLUICE_CUDA_LIBRARY
  if (!question.explains()) {
    c.pre.check_interpreted(c.op);
    c.post.check_interpreted(c.op);
    return std::nullopt;
  }
#endif
  check_forced(c, is_depthwise(c) ? kTransposedForcedReason : kForcedReason);
  if (!question.explains()) return std::nullopt;
  return plan_text(aten_plan(reason), question, !c.pre.empty() || !c.post.empty(), result.elements());
}

// Why a phase behind the first has no kernel on that device, or null: then aten takes all, before one has written its
// results.
const char* phase_without_kernel(const Convolution& c, const Conv1dParams& whole, const DeviceProperties& device) {
  for (int64_t first = 1; first < output_phases(whole); ++first) {
    const Conv1dProblem problem = make_problem(c, phase_params(whole, output_phase(whole, first)));
    for (bool linked : {false, true}) {
      const Conv1dPlan plan = plan_conv1d(problem, c.schedule, device, linked);
      if (plan.which == Conv1dMethod::aten) return plan.reason;
    }
  }
  return nullptr;
}

// Why aten takes a transposed convolution, or null where each phase is asked for on its own.
const char* reason_for_aten(const Convolution& c, const Conv1dParams& whole, [[maybe_unused]] const TensorView& result,
                            const Question& question) {
  const bool depthwise = is_depthwise(c);
  if (const char* reason = transposed_by_aten(whole, c.groups, depthwise)) return reason;
  if (!depthwise && c.stride > 1) return nullptr;  // one convolution, whatever becomes of that
  if (depthwise && !channel_stride(c).has_value()) return kApart;
  if (question.explains()) return phase_without_kernel(c, whole, question.device);
#ifdef SLUICE_CUDA_LIBRARY
  return phase_without_kernel(c, whole, properties_of(c.op, result.device_index));
#else
  return nullptr;
#endif
}

template <class Output>
std::optional<std::string> run_phases(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                      const Question& question, const Output& output) {
  if (const char* reason = reason_for_aten(c, whole, result, question)) {
    return leave_to_aten(c, reason, result, question);
  }
  if (c.stride > 1 && !is_depthwise(c)) {
    Conv1dParams rows = interleaved_params(whole);
    return run_problem(c, rows, result, question, output);
  }
  std::optional<TensorView> target;
  const auto allocated_once = [&] {
    if (!target.has_value()) target.emplace(output());
    return *target;
  };
  const int64_t phases = output_phases(whole);
  std::string answer;
  for (int64_t first = 0; first < phases; ++first) {
    Conv1dParams params = phase_params(whole, output_phase(whole, first));
    const std::optional<std::string> own = run_problem(c, params, result, question, allocated_once, phases);
    if (!own.has_value() || question.explains()) return own;
    if (answer.empty()) answer = *own;
  }
  return answer;
}

// All of the convolution, as run_problem has it.
template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const Question& question,
                                       const Output& output) {
  Conv1dParams params = make_params(c, result);
  if (c.is_transposed) return run_phases(c, params, result, question, output);
  return run_problem(c, params, result, question, output);
}

}  // namespace

bool is_depthwise(const Convolution& c) {
  return is_depthwise({.input_channels = c.input.size(1), .channels = c.sizes[1], .groups = c.groups}, c.schedule);
}

Conv1dParams depthwise_params(const Convolution& c, const TensorView& result) { return make_params(c, result); }

void check_out_overlap(const Convolution& c, const char* input, const TensorView& out) {
  check_no_overlap(c.op, out, input, c.input);
  check_no_overlap(c.op, out, "weight", c.weight);
  check_no_overlap(c.op, out, "packed", c.packed);
  check_no_overlap(c.op, out, "bias", c.bias);
  check_no_overlap(c.op, out, "initial_states", c.history);
  c.pre.check_no_overlap(c.op, out, "an operand of pre", /*may_be_same=*/false);
  c.post.check_no_overlap(c.op, out, "an operand of post", /*may_be_same=*/true);
}

void run_convolution(const Convolution& c, const Tensor& output) {
  const TensorView target(output);
  if (is_empty(c)) return check_empty(c);
  if (run_kernels(c, target, kCompute, [&] { return target; }).has_value()) return;
  const ChainBehindAten behind(c);
  run_transform(c.op, TensorView(convolve_with_aten(c, behind)), target, behind.chain(), ScheduleRequest{});
}

Tensor convolve(const Convolution& c) {
  const TensorView input(c.input);
  if (is_empty(c)) {
    check_empty(c);
    return allocate(c.op, c.sizes, c.strides, c.dtype, input);
  }
  std::optional<Tensor> output;
  const auto allocated = [&] {
    output = allocate(c.op, c.sizes, c.strides, c.dtype, input);
    return TensorView(*output);
  };
  if (run_kernels(c, TensorView(input, c.sizes, c.strides, c.dtype), kCompute, allocated).has_value()) return *output;

  const ChainBehindAten behind(c);
  Tensor result = convolve_with_aten(c, behind);
  const TensorView view(result);
  if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
    if (!c.post.empty()) run_transform(c.op, view, view, behind.chain(), ScheduleRequest{});
    return restrided(c.op, result, c.strides);
  }
  run_transform(c.op, view, allocated(), behind.chain(), ScheduleRequest{});
  return *output;
}

std::string ask_convolution(const Convolution& c, const TensorView* out, const Question& question) {
  const TensorView result = out != nullptr ? *out : TensorView(TensorView(c.input), c.sizes, c.strides, c.dtype);
  if (is_empty(c)) {
    check_empty(c);
    return kEmptyResult;
  }
  const std::optional<std::string> answer = run_kernels(c, result, question, [&] { return result; });
  return answer.has_value() ? *answer : prepare_passes(c, result, question);
}

}  // namespace sluice
