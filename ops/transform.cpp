// transform: a chain over a tensor, in one pass; the plan of one that is not there.
#include "kernels/transform/transform.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/elementwise.h"
#include "ops/transform_call.h"

namespace sluice {
namespace {

struct Request {
  TransformCall call;
  TransformChain chain;

  std::string run(const TensorView& output, Run run = Run::now) const {
    return run_transform(call.kOp, call.input, output, chain.chain, call.schedule, run);
  }
};

Request check_arguments(const Tensor& input, const std::string& chain, const OptionalTensors& operands,
                        const std::optional<ScalarType>& dtype, const std::string& schedule,
                        const std::optional<int64_t>& depth) {
  const TransformCall call(input, dtype, schedule, depth);
  return {.call = call, .chain = TransformChain(call, chain, operands)};
}

Tensor transform(const Request& request) {
  Tensor output = request.chain.allocate_result(request.call);
  request.run(TensorView(output));
  return output;
}

void transform_out(const Request& request, const Tensor& out) {
  const TensorView view(out);
  request.chain.check_result(request.call, view, /*may_be_same=*/true);
  aten::raise_version(request.call.kOp, out);
  request.run(view);
}

// Links what the call would run, without running it.
std::string prepare_transform(const Request& request) {
  const Tensor output = request.chain.allocate_result(request.call);
  return request.run(TensorView(output), Run::prepare);
}

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("transform", TORCH_BOX((raw_op<check_arguments, transform>)));
  m.impl("transform_out", TORCH_BOX((raw_op<check_arguments, transform_out>)));
  m.impl("_prepare_transform", TORCH_BOX((raw_op<check_arguments, prepare_transform>)));
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

#define SLUICE_TRANSFORM_ARGUMENTS                                                                       \
  "Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, str schedule=\"auto\", " \
  "int? depth=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("transform(" SLUICE_TRANSFORM_ARGUMENTS ") -> Tensor");
  m.def("_prepare_transform(" SLUICE_TRANSFORM_ARGUMENTS ") -> str");
  m.def("transform_out(" SLUICE_TRANSFORM_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def(
      "_plan_transform(int elements, int inner, ScalarType dtype, str schedule, int? depth, bool linked, int[] device) "
      "-> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) { m.impl("_plan_transform", TORCH_BOX(&plan)); }
#endif

}  // namespace sluice
