#include "ops/elementwise.h"

#include <torch/csrc/stable/ops.h>

#include "kernels/transform/transform.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/launch.h"
#include "ops/common/plan_text.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/transform/launch.h"
#endif

namespace sluice {
namespace {

constexpr const char* kOp = "transform";
constexpr const char* kEmpty = "the tensor is empty";
[[maybe_unused]] constexpr const char* kOnCpu = "the CPU needs no linking";

// Every tensor walks memory as the output does, or is one number: one flat dimension, found without sorting.
bool is_flat(const TensorView& input, const TensorView& output, const Chain& chain) {
  const auto walks_alike = [&](const TensorView& tensor) {
    if (tensor.rank != output.rank) return false;
    for (int64_t d = 0; d < output.rank; ++d) {
      if (tensor.sizes[d] != output.sizes[d] || (output.sizes[d] != 1 && tensor.strides[d] != output.strides[d])) return false;
    }
    return true;
  };
  if (!walks_alike(input) || !output.is_dense()) return false;
  for (const TensorView& operand : chain.operands) {
    if (operand.elements() != 1 && !walks_alike(operand)) return false;
  }
  return true;
}

TransformParams make_params(const char* op, const TensorView& input, const TensorView& output, const Chain& chain) {
  TransformParams params;
  params.input = input.data;
  params.output = output.data;
  params.input_dtype = input.dtype;
  params.output_dtype = output.dtype;
  params.program = chain.program;
  const std::size_t operands = chain.operands.size();
  for (std::size_t k = 0; k < operands; ++k) {
    params.operands[k].data = chain.operands[k].data;
    params.operands[k].dtype = chain.operands[k].dtype;
  }
  if (is_flat(input, output, chain)) {
    params.rank = 1;
    params.sizes[0] = output.elements();
    params.input_strides[0] = params.output_strides[0] = 1;
    for (std::size_t k = 0; k < operands; ++k) params.operands[k].strides[0] = chain.operands[k].elements() != 1;
    return params;
  }
  const std::vector<int64_t> sizes = sizes_of(output);
  const auto widen = [](const auto& from) { return std::vector<long long>(from.begin(), from.end()); };
  std::vector<std::vector<long long>> strides = {{output.strides, output.strides + output.rank},
                                                 {input.strides, input.strides + input.rank}};
  for (std::size_t k = 0; k < operands; ++k) strides.push_back(widen(chain.strides(k, sizes)));
  const Geometry geometry = merge_dimensions(widen(sizes), strides);
  check(geometry.rank > 0, op, ": input must have at most ", kMaxDims, " dimensions that do not merge, got ", input.shape());
  params.rank = geometry.rank;
  for (int d = 0; d < geometry.rank; ++d) {
    params.sizes[d] = geometry.sizes[d];
    params.output_strides[d] = geometry.strides[0][d];
    params.input_strides[d] = geometry.strides[1][d];
    for (std::size_t k = 0; k < operands; ++k) params.operands[k].strides[d] = geometry.strides[2 + k][d];
  }
  return params;
}

Tensor transform(const Tensor& input, const std::string& chain, const OptionalTensors& operands,
                 const std::optional<ScalarType>& dtype, const std::string& schedule, const std::optional<int64_t>& depth) {
  const TransformCall call(input, dtype, schedule, depth);
  const TransformChain one(call, chain, operands);
  Tensor output = allocate_like(kOp, call.input, one.dtype);
  run_transform(kOp, call.input, TensorView(output), one.chain, call.schedule);
  return output;
}

void transform_out(const Tensor& input, const std::string& chain, const OptionalTensors& operands,
                   const std::optional<ScalarType>& dtype, const std::string& schedule, const std::optional<int64_t>& depth,
                   const Tensor& out) {
  const TransformCall call(input, dtype, schedule, depth);
  const TransformChain one(call, chain, operands);
  const TensorView view(out);
  one.check_result(call, view, /*may_be_same=*/true);
  aten::raise_version(kOp, out);
  run_transform(kOp, call.input, view, one.chain, call.schedule);
}

// Links what the call would run, without running it.
std::string prepare_transform(const Tensor& input, const std::string& chain, const OptionalTensors& operands,
                              const std::optional<ScalarType>& dtype, const std::string& schedule,
                              const std::optional<int64_t>& depth) {
  const TransformCall call(input, dtype, schedule, depth);
  const TransformChain one(call, chain, operands);
  const Tensor output = allocate_like(kOp, call.input, one.dtype);
  return run_transform(kOp, call.input, TensorView(output), one.chain, call.schedule, Run::prepare);
}

}  // namespace

TransformCall::TransformCall(const Tensor& tensor, const std::optional<ScalarType>& wanted, const std::string& name,
                             const std::optional<int64_t>& depth)
    : input(tensor) {
  check_floating(kOp, "input", input);
  schedule = check_schedule(kOp, name, depth);
  dtype = check_result_dtype(kOp, wanted);
}

TransformChain::TransformChain(const TransformCall& call, const std::string& text, const OptionalTensors& operands)
    : chain(kOp, "chain", text, operands, call.input, sizes_of(call.input)),
      dtype(call.dtype.value_or(chain.result_dtype().value_or(call.input.dtype))) {}

void TransformChain::check_result(const TransformCall& call, const TensorView& out, bool may_be_same) const {
  check_out(kOp, out, sizes_of(call.input), dtype, call.input);
  check_no_overlap(kOp, out, "input", call.input, may_be_same);
  for (const TensorView& operand : chain.operands) check_no_overlap(kOp, out, "an operand", operand, may_be_same);
}

Tensor allocate_like(const char* op, const TensorView& input, DType dtype) {
  const std::vector<int64_t> sizes = sizes_of(input);
  const bool keeps_strides = input.elements() > 0 && input.is_dense();
  const std::vector<int64_t> strides =
      keeps_strides ? std::vector<int64_t>(input.strides, input.strides + input.rank) : contiguous_strides(sizes);
  return allocate(op, sizes, strides, dtype, input);
}

#ifdef SLUICE_CUDA_LIBRARY
namespace {

// Runs the form that `choose_form` picks; where only the linked one will do and it is not there, nothing.
Form launch(const char* op, const TensorView& input, const TensorView& output, const Chain& chain, const ScheduleRequest& request,
            Run run, bool only_linked) {
  const TransformParams params = make_params(op, input, output, chain);
  const DeviceScope device(op, input.device_index);
  const auto planned = [&](bool linked) {
    return plan_transform(problem_of(params), request, properties_of(op, input.device_index), linked);
  };
  Plan plan = planned(true);
  check(plan.threads > 0, op, ": schedule must be able to run here: ", plan.reason, ", got ", name_of(plan.schedule),
        " at depth ", request.depth);
  Form form = choose_form(op, link_request(params, plan), device, output.elements(), run);
  if (form.kernel == nullptr) plan = planned(false);
  if (run == Run::now && (form.kernel != nullptr || !only_linked)) {
    device.check_launch(launch_transform(params, plan, form.kernel, device.stream()));
  }
  return form;
}

}  // namespace
#endif

std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          [[maybe_unused]] const ScheduleRequest& request, [[maybe_unused]] Run run) {
  if (output.elements() == 0) return kEmpty;
#ifdef SLUICE_CUDA_LIBRARY
  return launch(op, input, output, chain, request, run, /*only_linked=*/false).reason;
#else
  chain.check_interpreted(op);
  const TransformParams params = make_params(op, input, output, chain);
  constexpr int64_t kGrain = 32 * 1024;  // elements that are worth a thread
  torch::stable::parallel_for(0, output.elements(), kGrain,
                              [&](int64_t first, int64_t last) { transform_cpu(params, first, last); });
  return kOnCpu;
#endif
}

std::string run_linked_transform([[maybe_unused]] const char* op, [[maybe_unused]] const TensorView& input,
                                 const TensorView& output, [[maybe_unused]] const Chain& chain,
                                 [[maybe_unused]] const ScheduleRequest& request, [[maybe_unused]] Run run) {
  if (output.elements() == 0) return kEmpty;
#ifdef SLUICE_CUDA_LIBRARY
  return launch(op, input, output, chain, request, run, /*only_linked=*/true).reason;
#else
  return kOnCpu;
#endif
}

SLUICE_DEVICE_KERNELS(m) {
  m.impl("transform", TORCH_BOX(&transform));
  m.impl("transform_out", TORCH_BOX(&transform_out));
  m.impl("_prepare_transform", TORCH_BOX(&prepare_transform));
}

#ifndef SLUICE_CUDA_LIBRARY
namespace {

// Plans for a tensor of `elements`, `inner` of them side by side, on a device as plan_text.h lists it.
std::string plan(int64_t elements, int64_t inner, ScalarType dtype, const std::string& schedule,
                 const std::optional<int64_t>& depth, bool linked, const std::vector<int64_t>& device) {
  const ScheduleRequest request = check_schedule("plan", schedule, depth);
  check_result("plan", {elements});
  check(inner > 0 && inner <= elements, "plan: inner must be 1 to elements, got ", inner);
  const TransformProblem problem = contiguous_problem(elements, inner, check_result_dtype("plan", dtype).value());
  return plan_text(plan_transform(problem, request, device_from("plan", device), linked));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def(
      "transform(Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, "
      "str schedule=\"auto\", int? depth=None) -> Tensor");
  m.def(
      "transform_out(Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, "
      "str schedule=\"auto\", int? depth=None, Tensor(a!) out) -> ()");
  m.def(
      "_prepare_transform(Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, "
      "str schedule=\"auto\", int? depth=None) -> str");
  m.def("_plan_transform(int elements, int inner, ScalarType dtype, str schedule, int? depth, bool linked, int[] device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) { m.impl("_plan_transform", TORCH_BOX(&plan)); }
#endif

}  // namespace sluice
