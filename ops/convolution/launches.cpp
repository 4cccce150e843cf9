#include "ops/convolution/launches.h"

#include "ops/common/allocate.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/convolution/aten.h"
#include "ops/convolution/params.h"
#include "ops/convolution/split_k.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#else
#include "ops/convolution/cpu.h"
#endif

namespace sluice {
#ifdef SLUICE_CUDA_LIBRARY
namespace {

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

}  // namespace
#endif

void check_forced(const Convolution& c, const char* reason_for_aten) {
  check(c.schedule.automatic, c.op, ": schedule must be auto here, because ", reason_for_aten, "; got ",
        name_of(c.schedule.schedule));
}

std::optional<std::string> run_problem(const Convolution& c, Conv1dParams& params, const TensorView& result,
                                       const CallMode& mode, [[maybe_unused]] const OutputOf& output,
                                       [[maybe_unused]] const Launch& launch) {
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

std::optional<std::string> run_launches(const Convolution& c, int64_t count, const ParamsOf& params_of,
                                        const TensorView& result, const CallMode& mode, const OutputOf& output,
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

}  // namespace sluice
