#include "ops/elementwise.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/operators/transform/link.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/common/plan_text.h"

namespace sluice {
namespace {

// Whether every tensor is in the output's order in memory, or is one number: one flat dimension, found without sorting.
bool is_flat(const TensorView& input, const TensorView& output, const Chain& chain) {
  if (!output.walks_like(input) || !output.is_non_overlapping_and_dense()) return false;
  for (const TensorView& operand : chain.operands) {
    if (operand.elements() != 1 && !output.walks_like(operand)) return false;
  }
  return true;
}

// All tensors' strides, merged: the output's and the input's, then the operands'.
Geometry merge(const char* op, const TensorView& input, const TensorView& output, const Chain& chain) {
  const std::vector<int64_t> sizes = sizes_of(output);
  const auto widen = [](const auto& from) { return std::vector<long long>(from.begin(), from.end()); };
  std::vector<std::vector<long long>> strides = {{output.strides, output.strides + output.rank},
                                                 {input.strides, input.strides + input.rank}};
  for (std::size_t k = 0; k < chain.operands.size(); ++k) strides.push_back(widen(chain.strides(k, sizes)));
  Geometry geometry = merge_dimensions(widen(sizes), strides);
  check(geometry.rank > 0, op, ": input must have at most ", kMaxDims, " dimensions that do not merge, got ",
        input.shape());
  return geometry;
}

TransformParams make_params(const char* op, const TensorView& input, const TensorView& output, const Chain& chain) {
  TransformParams params;  // 3 KiB, mostly unused: not cleared
  params.input.data = input.data;
  params.input.dtype = input.dtype;
  params.output.data = output.data;
  params.output.dtype = output.dtype;
  if (is_flat(input, output, chain)) {
    params.rank = 1;
    params.sizes[0] = output.elements();
    params.input.strides[0] = params.output.strides[0] = 1;
    chain.fill(params.program, params.operands,
               [&](std::size_t k) { return std::array{chain.operands[k].elements() == 1 ? 0 : 1}; });
    return params;
  }
  const Geometry geometry = merge(op, input, output, chain);
  params.rank = geometry.rank;
  std::copy_n(geometry.sizes, geometry.rank, params.sizes);
  std::copy_n(geometry.strides[0].begin(), geometry.rank, params.output.strides);
  std::copy_n(geometry.strides[1].begin(), geometry.rank, params.input.strides);
  chain.fill(params.program, params.operands, [&](std::size_t k) { return std::span(geometry.strides[2 + k]); });
  return params;
}

TransformPlan checked_plan(const char* op, const TransformProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device, bool linked) {
  const TransformPlan plan = plan_transform(problem, request, device, linked);
  check_plan(op, plan, request);
  return plan;
}

// Plans, then launches, links or returns the plan, as `mode` says. `only_linked`: without a linked form, does and
// returns nothing.
std::optional<std::string> run(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                               const ScheduleRequest& request, const CallMode& mode, bool only_linked, bool is_new) {
  if (mode.plans()) {
    if (only_linked && !mode.linked) return std::nullopt;
    const TransformProblem problem = problem_of(make_params(op, input, output, chain));
    const TransformPlan plan = checked_plan(op, problem, request, mode.device, !chain.empty() && mode.linked);
    return plan_text(plan, mode, !chain.empty(), output.elements());
  }
  const DeviceScope device(op, input.device_index);
  if (device.is_cpu() && only_linked) return std::nullopt;
  Pass pass = plan_pass(op, device.properties(), input, output, chain, request);
  pass.params.is_new = is_new;
  if (device.is_cpu()) {
    chain.check_interpreted(op);
    if (!mode.computes()) return kOnCpu;
  } else {
    const Form form = link_pass(device, pass, request, mode.action);
    if (only_linked && pass.linked == nullptr) return std::nullopt;
    if (!mode.computes()) return form.why();
  }
  launch_pass(device, pass);
  return std::string();
}

}  // namespace

Pass plan_pass(const char* op, const DeviceProperties* device, const TensorView& input, const TensorView& output,
               const Chain& chain, const ScheduleRequest& request) {
  Pass pass{.params = make_params(op, input, output, chain)};
  if (device == nullptr) return pass;
  pass.plan = checked_plan(op, problem_of(pass.params), request, *device, /*linked=*/!chain.empty());
  return pass;
}

Form link_pass(const DeviceScope& device, Pass& pass, const ScheduleRequest& request, Action action) {
  if (pass.params.program.empty()) return {.reason = kNoChain};
  const long long elements = pass.plan.problem.elements;
  Form form = choose_form(device.op(), link_request(pass.params, pass.plan), device, elements, action);
  pass.linked = form.kernel;
  if (form.kernel == nullptr) {
    pass.plan = checked_plan(device.op(), problem_of(pass.params), request, *device.properties(), /*linked=*/false);
  }
  return form;
}

void launch_pass(const DeviceScope& device, const Pass& pass) { launch(device, pass.params, pass.plan, pass.linked); }

std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, const CallMode& mode, bool is_new) {
  if (output.elements() == 0) return mode.computes() ? "" : kEmptyResult;
  return *run(op, input, output, chain, request, mode, /*only_linked=*/false, is_new);
}

std::optional<std::string> run_linked_transform(const char* op, const TensorView& input, const TensorView& output,
                                                const Chain& chain, const ScheduleRequest& request,
                                                const CallMode& mode) {
  if (output.elements() == 0) return std::nullopt;
  return run(op, input, output, chain, request, mode, /*only_linked=*/true, /*is_new=*/false);
}

}  // namespace sluice
