#include "ops/convolution/convolution.h"

#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv_transpose1d/conv_transpose1d.h"
#include "kernels/conv_transpose1d/to_channels_first.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/convolution/aten.h"
#include "ops/convolution/forms.h"
#include "ops/convolution/params.h"
#include "ops/convolution/split_k.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#include "kernels/conv_transpose1d/launch.h"
#else
#include "ops/convolution/cpu.h"
#endif

namespace sluice {
namespace {

constexpr CallMode kCompute{};
constexpr AtenReason kApart("the weight's output channels are not equally far apart");

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// One of several launches, or one that is followed by more.
struct Launch {
  std::string detail = {};      // describes the launches in the plan's text
  int64_t workspace_bytes = 0;  // beside the plan's own
  bool in_passes = false;       // even where chains could be linked
  int64_t number = 0;           // index of the launch
#ifdef SLUICE_CUDA_LIBRARY
  const ConvolutionForms* forms = nullptr;  // of all launches, where they are known already
#endif
};

void check_forced(const Convolution& c, const char* reason_for_aten) {
  check(c.schedule.automatic, c.op, ": schedule must be auto here, because ", reason_for_aten, "; got ",
        name_of(c.schedule.schedule));
}

// A result without elements needs no kernel, but an unsuitable schedule is refused all the same.
void check_empty([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  if (!is_depthwise(c)) check_forced(c, kForcedReason);
#endif
}

template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const CallMode& mode,
                                       const Output& output);

#ifdef SLUICE_CUDA_LIBRARY
// Runs the dense kernel without chains, between passes of them. The bits are the linked kernel's, because the sums are
// not rounded in between.
void run_in_passes(const Convolution& c, const TensorView& target) {
  Convolution plain = c;
  plain.input = input_after_pre(c);
  plain.pre.clear();
  plain.post.clear();
  plain.unsplit = true;
  const auto run = [&](const TensorView& output) {
    const bool done = run_kernels(plain, output, kCompute, [&] { return output; }).has_value();
    check(done, c.op, ": the kernel fits with its chains but not without them");
  };
  if (c.post.empty()) return run(target);
  plain.dtype = DType::float32;
  // In the result's layout, on which it depends whether a transposed convolution has a kernel.
  const std::vector<int64_t> strides = c.is_transposed ? layout_strides(target, c.sizes, /*spatial=*/1) : c.strides;
  const Tensor sums = allocate(c.op, c.sizes, strides, plain.dtype, target);
  run(TensorView(sums));
  run_transform(c.op, TensorView(sums), target, c.post, ScheduleRequest{});
}

std::string run_split(const Convolution& c, const Conv1dParams& params, const Conv1dPlan& plan,
                      const DeviceScope& device, const TensorView& target) {
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, target);
  char* const memory = static_cast<char*>(TensorView(*workspace).data);
  const SplitSums sums(c, memory + (plan.workspace_bytes - plan.dense.sums_bytes), plan.dense.splits, target);
  Conv1dParams own = params;
  own.output = sums.output();
  own.bias = {};
  own.post = {};
  device.check_launch(launch_conv1d(own, plan, nullptr, memory, device.stream()));
  run_transform(c.op, sums.first(), target, sums.chain(), ScheduleRequest{});
  return {};
}
#endif

// Plans, then launches into `output()`, links or explains, as `mode` says. Returns nothing where aten computes the
// sums; else why the chains were not linked, or the plan's text. `result` is the output or a view in its place;
// `params` are of the whole convolution or of one launch.
template <class Output>
std::optional<std::string> run_problem(const Convolution& c, Conv1dParams& params, const TensorView& result,
                                       const CallMode& mode, [[maybe_unused]] const Output& output,
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
  if (mode.plans()) {
    Conv1dPlan plan = planned(mode.device, chained && mode.linked);
    if (plan.which != Conv1dMethod::aten) plan.workspace_bytes += launch.workspace_bytes;
    return plan_text(plan, mode, chained, result.elements(),
                     detail_of(plan, params.interleave, is_chained(params, plan) && !mode.linked, launch.detail));
  }
  // The params may be of a component, which begins after the result's first element.
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
    forms = choose_forms(c.op, params, plan, device, result.elements(), mode.action);
  }
  params.dense.linked_to_channels_last = forms.conversion.kernel;
  if (plan.dense.splits > 1) {
    if (mode.computes()) return run_split(c, params, plan, device, set_output());
    const SplitSums sums(c, nullptr, plan.dense.splits, result);
    forms.own.reason = "";
    forms.own.error = run_transform(c.op, sums.first(), result, sums.chain(), ScheduleRequest{}, mode);
    return forms.why();
  }
  const bool own_chained = is_chained(params, plan);
  if (own_chained && forms.own.kernel == nullptr) plan = planned(properties, false);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  if (!mode.computes()) return forms.why();
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
  if (!mode.computes()) return chained ? kOnCpu : kNoChain;
  set_output();
  run_depthwise_on_cpu(params);
  return std::string();
#endif
}

// A transposed convolution for which aten was chosen.
std::optional<std::string> leave_to_aten(const Convolution& c, const char* reason, const TensorView& result,
                                         const CallMode& mode) {
#ifndef SLUICE_CUDA_LIBRARY
  if (!mode.plans()) {
    c.pre.check_interpreted(c.op);
    c.post.check_interpreted(c.op);
    return std::nullopt;
  }
#endif
  check_forced(c, is_depthwise(c) ? kTransposedForcedReason : kForcedReason);
  if (!mode.plans()) return std::nullopt;
  return plan_text(aten_plan(reason), mode, !c.pre.empty() || !c.post.empty(), result.elements());
}

// Why a launch after the first has no kernel on the device, or null. aten must then compute all of it, before a launch
// has written results. `params_of(i)`: of launch i.
template <class ParamsOf>
const char* launch_without_kernel(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                  [[maybe_unused]] const TensorView& result, const CallMode& mode) {
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
  if (mode.plans()) return reason_on(mode.device);
#ifdef SLUICE_CUDA_LIBRARY
  return reason_on(properties_of(c.op, result.device_index));
#else
  return nullptr;
#endif
}

// run_problem for `count` launches into one output.
template <class ParamsOf, class Output>
std::optional<std::string> run_launches(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                        const TensorView& result, const CallMode& mode, const Output& output,
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
    const std::optional<std::string> own = run_problem(c, params, result, mode, allocated_once, launch);
    if (!own.has_value() || mode.plans()) return own;
    if (answer.empty()) answer = *own;
  }
  return answer;
}

#ifdef SLUICE_CUDA_LIBRARY
// The linked forms of several dense launches, or nothing where one has none: then passes compute the whole convolution,
// because an operand of `post` may be the output, which no launch may have written by then.
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
    forms.back() = choose_forms(c.op, params, plan, device, result.elements(), kCompute.action);
    if (is_chained(params, plan) && plan.dense.splits == 1 && forms.back().own.kernel == nullptr) return {};
  }
  return forms;
}
#endif

// A transposed convolution whose channels are summed: a dense kernel for each component range.
template <class Output>
std::optional<std::string> run_component_ranges(const Convolution& c, const Conv1dParams& whole,
                                                const TensorView& result, const CallMode& mode, const Output& output,
                                                Launch launch = {}) {
  const ComponentRanges ranges = component_ranges(whole);
  const auto params_of = [&](int64_t i) { return interleaved_params(whole, ranges.of[i]); };
  if (const char* reason = launch_without_kernel(c, ranges.count, params_of, result, mode)) {
    return leave_to_aten(c, reason, result, mode);
  }
  if (ranges.count > 1) {
    launch.detail +=
        (launch.detail.empty() ? "" : "; ") + std::to_string(ranges.count) + " launches, of polyphase components with ";
    for (int i = 0; i < ranges.count; ++i) {
      launch.detail += (i == 0 ? "" : i + 1 < ranges.count ? ", " : " and ") + std::to_string(ranges.of[i].taps);
    }
    launch.detail += " taps";
#ifdef SLUICE_CUDA_LIBRARY
    if ((!c.pre.empty() || !c.post.empty()) && mode.computes()) {
      const std::vector<ConvolutionForms> forms = linked_forms(c, ranges.count, params_of, result);
      launch.in_passes = forms.empty();
      launch.forms = forms.data();
      return run_launches(c, launch.in_passes ? 1 : ranges.count, params_of, result, mode, output, launch);
    }
#endif
  }
  return run_launches(c, ranges.count, params_of, result, mode, output, launch);
}

// The same where the kernel writes rows of channels, which are then transposed into the output.
template <class Output>
std::optional<std::string> run_converted(const Convolution& c, const TensorView& result, const CallMode& mode,
                                         const Output& output) {
  const int64_t pitch = ToChannelsFirstParams::pitch(c.sizes[1]);
  const std::vector<int64_t> sizes = {c.sizes[0], pitch, c.sizes[2]}, strides = {c.sizes[2] * pitch, 1, pitch};
  const TensorView rows_view(result, c.sizes, strides, c.dtype);
  std::optional<Tensor> rows;
  std::optional<TensorView> target;
  const auto allocated = [&] {  // all of it before the first launch
    target.emplace(output());
    rows = allocate(c.op, sizes, strides, c.dtype, result);
    TensorView allocated_rows = rows_view;
    allocated_rows.data = TensorView(*rows).data;
    return allocated_rows;
  };
  const Launch launch{.detail = "results are channels-last in a workspace, then transposed into the output",
                      .workspace_bytes = c.sizes[0] * c.sizes[2] * pitch * static_cast<int64_t>(size_of(c.dtype))};
  const std::optional<std::string> answer =
      run_component_ranges(c, make_params(c, rows_view), rows_view, mode, allocated, launch);
#ifdef SLUICE_CUDA_LIBRARY
  if (answer.has_value() && mode.computes()) {
    const DeviceScope device(c.op, result.device_index);
    const ToChannelsFirstParams transposition{.rows = TensorView(*rows).data,
                                              .output = operand_of<3>(*target),
                                              .batch = c.sizes[0],
                                              .channels = c.sizes[1],
                                              .length = c.sizes[2]};
    device.check_launch(launch_to_channels_first(transposition, device.stream()));
  }
#endif
  return answer;
}

template <class Output>
std::optional<std::string> run_polyphase(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                         const CallMode& mode, const Output& output) {
  const bool depthwise = is_depthwise(c);
  if (const char* reason = transposed_by_aten(whole, c.groups, depthwise)) {
    return leave_to_aten(c, reason, result, mode);
  }
  if (!depthwise && c.stride > 1) {
    return converts_results(whole) ? run_converted(c, result, mode, output)
                                   : run_component_ranges(c, whole, result, mode, output);
  }
  if (depthwise && !channel_stride(c).has_value()) return leave_to_aten(c, kApart, result, mode);
  if (const char* reason = depthwise ? faster_by_aten(c, whole, mode) : nullptr) {
    return leave_to_aten(c, reason, result, mode);
  }
  const int64_t components = component_count(whole);
  const auto params_of = [&](int64_t first) { return component_params(whole, polyphase_component(whole, first)); };
  if (const char* reason = launch_without_kernel(c, components, params_of, result, mode)) {
    return leave_to_aten(c, reason, result, mode);
  }
  Launch launch;
  if (components > 1) launch.detail = std::to_string(components) + " polyphase components, one launch each";
  return run_launches(c, components, params_of, result, mode, output, launch);
}

// run_problem for the whole convolution.
template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const CallMode& mode,
                                       const Output& output) {
  Conv1dParams params = make_params(c, result);
  if (c.is_transposed) return run_polyphase(c, params, result, mode, output);
  return run_problem(c, params, result, mode, output);
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
  const ChainAfterAten after(c);
  run_transform(c.op, TensorView(convolve_with_aten(c, after)), target, after.chain(), ScheduleRequest{});
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

  const ChainAfterAten after(c);
  Tensor result = convolve_with_aten(c, after);
  const TensorView view(result);
  if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
    if (!c.post.empty()) run_transform(c.op, view, view, after.chain(), ScheduleRequest{});
    return restrided(c.op, result, c.strides);
  }
  run_transform(c.op, view, allocated(), after.chain(), ScheduleRequest{});
  return *output;
}

std::string prepare_or_plan_convolution(const Convolution& c, const TensorView* out, const CallMode& mode) {
  const TensorView result = out != nullptr ? *out : TensorView(TensorView(c.input), c.sizes, c.strides, c.dtype);
  if (is_empty(c)) {
    check_empty(c);
    return kEmptyResult;
  }
  const std::optional<std::string> answer = run_kernels(c, result, mode, [&] { return result; });
  return answer.has_value() ? *answer : prepare_passes(c, result, mode);
}

}  // namespace sluice
