// Transposed convolutions: a launch for each polyphase component, or range of components.
#include "kernels/conv_transpose1d/conv_transpose1d.h"

#include "kernels/conv1d/aten_reason.h"
#include "kernels/transpose/transpose.h"
#include "ops/common/allocate.h"
#include "ops/common/plan_text.h"
#include "ops/convolution/aten.h"
#include "ops/convolution/launches.h"
#include "ops/convolution/params.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/transpose/launch.h"
#include "ops/common/launch.h"
#endif

namespace sluice {
namespace {

constexpr AtenReason kApart("the weight's output channels are not equally far apart");

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

#ifdef SLUICE_CUDA_LIBRARY
// The linked forms of several dense launches, or nothing where one has none: then passes compute the whole convolution,
// because an operand of `post` may be the output, which no launch may have written by then.
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
std::optional<std::string> run_component_ranges(const Convolution& c, const Conv1dParams& whole,
                                                const TensorView& result, const CallMode& mode, const OutputOf& output,
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
std::optional<std::string> run_converted(const Convolution& c, const TensorView& result, const CallMode& mode,
                                         const OutputOf& output) {
  const int64_t pitch = TransposeParams::pitch(c.sizes[1]);
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
    TransposeParams transposition{.from = swapped(operand_of<3>(rows_view)),
                                  .to = swapped(operand_of<3>(*target)),
                                  .batch = c.sizes[0],
                                  .rows = c.sizes[2],
                                  .columns = c.sizes[1]};
    transposition.from.data = TensorView(*rows).data;
    device.check_launch(launch_transpose(transposition, device.stream()));
  }
#endif
  return answer;
}

}  // namespace

std::optional<std::string> run_transposed(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                          const CallMode& mode, const OutputOf& output) {
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

}  // namespace sluice
