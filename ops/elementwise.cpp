#include "ops/elementwise.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <span>

#include "kernels/transform/transform.h"
#include "ops/common/checks.h"
#include "ops/common/link.h"
#include "ops/common/plan_text.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/transform/launch.h"
#endif

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

// Plans, then launches, links or returns the plan, as `mode` says. `only_linked`: without a linked form, does and
// returns nothing.
std::optional<std::string> run(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                               const ScheduleRequest& request, const CallMode& mode, [[maybe_unused]] bool only_linked,
                               bool is_new) {
  TransformParams params = make_params(op, input, output, chain);
  params.is_new = is_new;
  const TransformProblem problem = problem_of(params);
  const auto planned = [&](const DeviceProperties& device, bool linked) {
    const TransformPlan plan = plan_transform(problem, request, device, linked);
    check_plan(op, plan, request);
    return plan;
  };
  const bool chained = !chain.empty();
  if (mode.plans()) {
    if (only_linked && !mode.linked) return std::nullopt;
    return plan_text(planned(mode.device, chained && mode.linked), mode, chained, output.elements());
  }
#ifdef SLUICE_CUDA_LIBRARY
  const DeviceScope device(op, input.device_index);
  const DeviceProperties& properties = properties_of(op, input.device_index);
  TransformPlan plan = planned(properties, chained);
  Form form{.reason = kNoChain};
  if (chained) form = choose_form(op, link_request(params, plan), device, output.elements(), mode.action);
  if (form.kernel == nullptr) {
    if (only_linked) return std::nullopt;
    if (chained) plan = planned(properties, false);
  }
  if (!mode.computes()) return form.why();
  device.check_launch(launch_transform(params, plan, form.kernel, device.stream()));
  return std::string();
#else
  chain.check_interpreted(op);
  if (!mode.computes()) return kOnCpu;
  constexpr int64_t kGrain = 32 * 1024;  // elements per thread at least
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, output.elements(), kGrain,
                                [&](int64_t first, int64_t last) { transform_cpu<set>(params, first, last); });
  });
  return std::string();
#endif
}

}  // namespace

std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, const CallMode& mode, bool is_new) {
  if (output.elements() == 0) return mode.computes() ? "" : kEmptyResult;
  return *run(op, input, output, chain, request, mode, /*only_linked=*/false, is_new);
}

std::optional<std::string> run_linked_transform(const char* op, const TensorView& input, const TensorView& output,
                                                const Chain& chain, const ScheduleRequest& request,
                                                const CallMode& mode) {
  if (output.elements() == 0) return std::nullopt;
#ifndef SLUICE_CUDA_LIBRARY
  if (!mode.plans()) return std::nullopt;
#endif
  return run(op, input, output, chain, request, mode, /*only_linked=*/true, /*is_new=*/false);
}

}  // namespace sluice
