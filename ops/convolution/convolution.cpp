#include "ops/convolution/convolution.h"

#include "ops/common/allocate.h"
#include "ops/common/checks.h"
#include "ops/convolution/aten.h"
#include "ops/convolution/params.h"
#include "ops/convolution/plan.h"

namespace sluice {
namespace {

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// A result without elements needs no kernel, but an unsuitable schedule is refused all the same.
void check_empty(const Convolution& c) {
  if (!TensorView(c.input).is_cpu() && !is_depthwise(c)) check_forced(c, kForcedReason);
}

// The result before it is allocated, or the caller's tensor.
Placed placed_result(const Convolution& c, const TensorView& input, const TensorView* out) {
  if (out != nullptr) return {*out};
  Placed result{TensorView(input, c.sizes, c.strides, c.dtype), Memory::result};
  result.view.data = nullptr;
  return result;
}

// A plan with its chains linked, and the form that says why they are not.
struct LinkedPlan {
  ConvolutionPlan plan;
  std::optional<Form> form = std::nullopt;
};

LinkedPlan plan_and_link(const Convolution& c, const TensorView& input, const Placed& result, const DeviceScope& device,
                         Action action) {
  LinkedPlan linked{plan_convolution(c, input, result, {.device = device.properties(), .linked = c.has_chains()})};
  Launches* launches = std::get_if<Launches>(&linked.plan);
  if (device.is_cpu() || launches == nullptr) return linked;
  const long long elements = result.view.elements();
  linked.form = link(*launches, device, elements, action);
  if (is_linked(*launches)) return linked;
  linked.plan = plan_convolution(c, input, result, {.device = device.properties(), .linked = false});
  launches = std::get_if<Launches>(&linked.plan);
  if (launches != nullptr && action == Action::compute) link(*launches, device, elements, action);
  return linked;
}

void allocate_and_run(const Convolution& c, Launches& launches, const DeviceScope& device, const TensorView& output) {
  const std::optional<Tensor> workspace = allocate_workspace(c.op, launches.workspace_bytes, output);
  run(launches, device, output.data, workspace.has_value() ? TensorView(*workspace).data : nullptr);
}

// The result, by aten's convolution and passes of the chains.
Tensor convolve_by_aten(const Convolution& c) {
  const ChainAfterAten after(c);
  Tensor result = convolve_with_aten(c, after);
  const TensorView view(result);
  if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
    if (!c.post.empty()) run_transform(c.op, view, view, after.chain(), ScheduleRequest{});
    return restrided(c.op, result, c.strides);
  }
  Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, TensorView(c.input));
  run_transform(c.op, view, TensorView(output), after.chain(), ScheduleRequest{});
  return output;
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

Tensor convolve(const Convolution& c) {
  const TensorView input(c.input);
  if (is_empty(c)) {
    check_empty(c);
    return allocate(c.op, c.sizes, c.strides, c.dtype, input);
  }
  const DeviceScope device(c.op, input.device_index);
  LinkedPlan linked = plan_and_link(c, input, placed_result(c, input, nullptr), device, Action::compute);
  Launches* const launches = std::get_if<Launches>(&linked.plan);
  if (launches == nullptr) return convolve_by_aten(c);
  Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, input);
  allocate_and_run(c, *launches, device, TensorView(output));
  return output;
}

void run_convolution(const Convolution& c, const Tensor& output) {
  if (is_empty(c)) return check_empty(c);
  const TensorView input(c.input), target(output);
  const DeviceScope device(c.op, target.device_index);
  LinkedPlan linked = plan_and_link(c, input, placed_result(c, input, &target), device, Action::compute);
  if (Launches* const launches = std::get_if<Launches>(&linked.plan)) {
    return allocate_and_run(c, *launches, device, target);
  }
  const ChainAfterAten after(c);
  run_transform(c.op, TensorView(convolve_with_aten(c, after)), target, after.chain(), ScheduleRequest{});
}

std::string prepare_or_plan_convolution(const Convolution& c, const TensorView* out, const CallMode& mode) {
  if (is_empty(c)) {
    check_empty(c);
    return kEmptyResult;
  }
  const TensorView input(c.input);
  const Placed result = placed_result(c, input, out);
  if (mode.plans()) return explain_convolution(c, input, result, mode);
  const DeviceScope device(c.op, result.view.device_index);
  const LinkedPlan linked = plan_and_link(c, input, result, device, mode.action);
  if (std::holds_alternative<Aten>(linked.plan)) return prepare_passes(c, result.view, mode);
  if (device.is_cpu()) return c.has_chains() ? kOnCpu : kNoChain;
  return linked.form.has_value() ? linked.form->why() : kNoChain;
}

}  // namespace sluice
