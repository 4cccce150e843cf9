#include "ops/convolution.h"

#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv1d/dense/turn.h"
#include "kernels/conv_transpose1d/conv_transpose1d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/convolution_aten.h"
#include "ops/convolution_forms.h"
#include "ops/convolution_params.h"
#include "ops/convolution_parts.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/dense/launch.h"
#include "kernels/conv1d/launch.h"
#else
#include "ops/convolution_cpu.h"
#endif

namespace sluice {
namespace {

constexpr Question kCompute{};
constexpr AtenReason kApart("the weight's output channels are not equally far apart");

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// One of several launches, or one with more behind it.
struct Launch {
  std::string detail = {};      // what they are, for the plan's text
  int64_t workspace_bytes = 0;  // of all, beside the plan's own
  bool in_passes = false;       // whatever is linked
  int64_t number = 0;           // which of them
#ifdef SLUICE_CUDA_LIBRARY
  const ConvolutionForms* forms = nullptr;  // of all, where they are known already
#endif
};

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
  plain.in_one_part = true;
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

std::string run_in_parts(const Convolution& c, const Conv1dParams& params, const Conv1dPlan& plan,
                         const DeviceScope& device, const TensorView& target) {
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, target);
  char* const memory = static_cast<char*>(TensorView(*workspace).data);
  const PartSums sums(c, memory + (plan.workspace_bytes - plan.dense.sums_bytes), plan.dense.parts, target);
  Conv1dParams own = params;
  own.output = sums.output();
  own.bias = {};
  own.post = {};
  device.check_launch(launch_conv1d(own, plan, nullptr, memory, device.stream()));
  run_transform(c.op, sums.first(), target, sums.chain(), ScheduleRequest{});
  return {};
}
#endif

// The one road to a kernel of sluice's own, whatever is asked: the problem, its plan, and then the launch into what
// `output` gives, the link, or the text. Nothing where aten makes the sums; else why the chains were not linked, or the
// text, which says so too. `result` is the output, or stands for it, and `params` are all of it or of one launch.
template <class Output>
std::optional<std::string> run_problem(const Convolution& c, Conv1dParams& params, const TensorView& result,
                                       const Question& question, [[maybe_unused]] const Output& output,
                                       [[maybe_unused]] const Launch& launch = {}) {
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
    Conv1dPlan plan = planned(question.device, chained && question.linked);
    if (plan.which != Conv1dMethod::aten) plan.workspace_bytes += launch.workspace_bytes;
    return plan_text(plan, question, chained, result.elements(),
                     detail_of(plan, params.interleave, is_chained(params, plan) && !question.linked, launch.detail));
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
  ConvolutionForms forms;
  if (launch.forms != nullptr) {
    forms = launch.forms[launch.number];
  } else if (chained && !launch.in_passes) {
    forms = choose_forms(c.op, params, plan, device, result.elements(), question.run);
  }
  params.dense.linked_lay = forms.lay.kernel;
  if (plan.dense.parts > 1) {
    if (question.computes()) return run_in_parts(c, params, plan, device, set_output());
    const PartSums sums(c, nullptr, plan.dense.parts, result);
    forms.own.reason = "";
    forms.own.error = run_transform(c.op, sums.first(), result, sums.chain(), ScheduleRequest{}, question);
    return forms.why();
  }
  const bool own_chained = is_chained(params, plan);
  if (own_chained && forms.own.kernel == nullptr) plan = planned(properties, false);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  if (!question.computes()) return forms.why();
  const TensorView target = set_output();
  if (plan.which == Conv1dMethod::dense && (launch.in_passes || (own_chained && forms.own.kernel == nullptr))) {
    run_in_passes(c, target);
    return std::string();
  }
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, target);
  void* const memory = workspace.has_value() ? TensorView(*workspace).data : nullptr;
  device.check_launch(launch_conv1d(params, plan, forms.own.kernel, memory, device.stream()));
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

// Why a launch behind the first has no kernel on that device, or null: then aten takes all, before one has written its
// results. `params_of(i)`: of a launch.
template <class ParamsOf>
const char* launch_without_kernel(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                  [[maybe_unused]] const TensorView& result, const Question& question) {
  const auto reason_on = [&](const DeviceProperties& device) -> const char* {
    for (int64_t i = 1; i < count; ++i) {
      const Conv1dProblem problem = make_problem(c, params_of(i));
      for (bool linked : {false, true}) {
        const Conv1dPlan plan = plan_conv1d(problem, c.schedule, device, linked);
        if (plan.which == Conv1dMethod::aten) return plan.reason;
      }
    }
    return nullptr;
  };
  if (question.explains()) return reason_on(question.device);
#ifdef SLUICE_CUDA_LIBRARY
  return reason_on(properties_of(c.op, result.device_index));
#else
  return nullptr;
#endif
}

// `count` launches into one output, as run_problem has them.
template <class ParamsOf, class Output>
std::optional<std::string> run_launches(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                        const TensorView& result, const Question& question, const Output& output,
                                        Launch launch) {
  std::optional<TensorView> target;
  const auto allocated_once = [&] {
    if (!target.has_value()) target.emplace(output());
    return *target;
  };
  std::string answer;
  for (int64_t i = 0; i < count; ++i) {
    Conv1dParams params = params_of(i);
    launch.number = i;
    const std::optional<std::string> own = run_problem(c, params, result, question, allocated_once, launch);
    if (!own.has_value() || question.explains()) return own;
    if (answer.empty()) answer = *own;
  }
  return answer;
}

#ifdef SLUICE_CUDA_LIBRARY
// The forms of several dense launches with their chains linked, or nothing where one has none: then passes compute
// all of the convolution, because no launch may have written results that an operand of `post` is.
template <class ParamsOf>
std::vector<ConvolutionForms> linked_forms(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                           const TensorView& result) {
  const DeviceScope device(c.op, result.device_index);
  const DeviceProperties& properties = properties_of(c.op, result.device_index);
  std::vector<ConvolutionForms> forms;
  for (int64_t i = 0; i < count; ++i) {
    const Conv1dParams params = params_of(i);
    const Conv1dPlan plan = plan_conv1d(make_problem(c, params), c.schedule, properties, /*linked=*/true);
    forms.emplace_back();
    if (plan.which == Conv1dMethod::aten) continue;
    forms.back() = choose_forms(c.op, params, plan, device, result.elements(), kCompute.run);
    if (is_chained(params, plan) && plan.dense.parts == 1 && forms.back().own.kernel == nullptr) return {};
  }
  return forms;
}
#endif

// A transposed convolution whose channels are summed: its polyphase components on the dense kernel.
template <class Output>
std::optional<std::string> run_components(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                          const Question& question, const Output& output, Launch launch = {}) {
  const PolyphaseComponents parts = polyphase_components(whole);
  const auto params_of = [&](int64_t i) { return interleaved_params(whole, parts.of[i]); };
  if (const char* reason = launch_without_kernel(c, parts.count, params_of, result, question)) {
    return leave_to_aten(c, reason, result, question);
  }
  if (parts.count > 1) {
    launch.detail += (launch.detail.empty() ? "" : "; ") + std::to_string(parts.count) + " launches, of phases with ";
    for (int i = 0; i < parts.count; ++i) {
      launch.detail += (i == 0 ? "" : i + 1 < parts.count ? ", " : " and ") + std::to_string(parts.of[i].taps);
    }
    launch.detail += " taps";
#ifdef SLUICE_CUDA_LIBRARY
    if ((!c.pre.empty() || !c.post.empty()) && question.computes()) {
      const std::vector<ConvolutionForms> forms = linked_forms(c, parts.count, params_of, result);
      launch.in_passes = forms.empty();
      launch.forms = forms.data();
      return run_launches(c, launch.in_passes ? 1 : parts.count, params_of, result, question, output, launch);
    }
#endif
  }
  return run_launches(c, parts.count, params_of, result, question, output, launch);
}

// The same where its results are rows of channels, which are turned into the output.
template <class Output>
std::optional<std::string> run_turned(const Convolution& c, const TensorView& result, const Question& question,
                                      const Output& output) {
  const int64_t pitch = TurnParams::pitch(c.sizes[1]);
  const std::vector<int64_t> sizes = {c.sizes[0], pitch, c.sizes[2]}, strides = {c.sizes[2] * pitch, 1, pitch};
  const TensorView place(result, c.sizes, strides, c.dtype);
  std::optional<Tensor> rows;
  std::optional<TensorView> target;
  const auto allocated = [&] {  // all of it before the first launch
    target.emplace(output());
    rows = allocate(c.op, sizes, strides, c.dtype, result);
    TensorView allocated_place = place;
    allocated_place.data = TensorView(*rows).data;
    return allocated_place;
  };
  const Launch launch{.detail = "results are rows of channels in a workspace, turned into the output",
                      .workspace_bytes = c.sizes[0] * c.sizes[2] * pitch * static_cast<int64_t>(size_of(c.dtype))};
  const std::optional<std::string> answer =
      run_components(c, make_params(c, place), place, question, allocated, launch);
#ifdef SLUICE_CUDA_LIBRARY
  if (answer.has_value() && question.computes()) {
    const DeviceScope device(c.op, result.device_index);
    const TurnParams turn{.rows = TensorView(*rows).data,
                          .output = operand_of<3>(*target),
                          .batch = c.sizes[0],
                          .channels = c.sizes[1],
                          .length = c.sizes[2]};
    device.check_launch(launch_turn(turn, device.stream()));
  }
#endif
  return answer;
}

template <class Output>
std::optional<std::string> run_phases(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                      const Question& question, const Output& output) {
  const bool depthwise = is_depthwise(c);
  if (const char* reason = transposed_by_aten(whole, c.groups, depthwise)) {
    return leave_to_aten(c, reason, result, question);
  }
  if (!depthwise && c.stride > 1) {
    return turns_results(whole) ? run_turned(c, result, question, output)
                                : run_components(c, whole, result, question, output);
  }
  if (depthwise && !channel_stride(c).has_value()) return leave_to_aten(c, kApart, result, question);
  if (const char* reason = depthwise ? faster_by_aten(c, whole, question) : nullptr) {
    return leave_to_aten(c, reason, result, question);
  }
  const int64_t phases = output_phases(whole);
  const auto params_of = [&](int64_t first) { return phase_params(whole, output_phase(whole, first)); };
  if (const char* reason = launch_without_kernel(c, phases, params_of, result, question)) {
    return leave_to_aten(c, reason, result, question);
  }
  Launch launch;
  if (phases > 1) launch.detail = std::to_string(phases) + " output phases, a launch each";
  return run_launches(c, phases, params_of, result, question, output, launch);
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
