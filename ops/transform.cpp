// transform: a chain over a tensor, in one pass.
#include <utility>

#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/common/streamed_op.h"
#include "ops/elementwise.h"
#include "ops/transform_call.h"

namespace sluice {
namespace {

struct Request {
  TransformCall call;
  TransformChain chain;

  std::string run(const TensorView& output, const CallMode& mode = {}, bool is_new = false) const {
    return run_transform(call.kOp, call.input, output, chain.chain, call.schedule, mode, is_new);
  }
};

Request check_arguments(const Tensor& input, const std::string& chain, const OptionalTensors& operands,
                        const std::optional<ScalarType>& dtype, const std::string& schedule,
                        const std::optional<int64_t>& depth) {
  TransformCall call(input, dtype, schedule, depth);
  TransformChain one(call, chain, operands);
  return {.call = std::move(call), .chain = std::move(one)};
}

Tensor transform(const Request& request) {
  Tensor output = request.chain.allocate_result(request.call);
  request.run(TensorView(output), {}, /*is_new=*/true);
  return output;
}

void transform_out(const Request& request, const Tensor& out) {
  const TensorView view(out);
  request.chain.check_result(request.call, view, /*may_be_same=*/true);
  aten::raise_version(request.call.kOp, out);
  request.run(view);
}

std::string prepare_or_plan(const Request& request, const std::optional<Tensor>& out, const CallMode& mode) {
  if (!out.has_value()) return request.run(request.chain.result(request.call), mode);
  const TensorView view(*out);
  request.chain.check_result(request.call, view, /*may_be_same=*/true);
  return request.run(view, mode);
}

std::string prepare_transform(const Request& request, const std::optional<Tensor>& out) {
  return prepare_or_plan(request, out, {.action = Action::prepare});
}

#ifndef SLUICE_CUDA_LIBRARY
std::string plan_transform(const Request& request, const std::optional<Tensor>& out, bool linked,
                           const std::vector<int64_t>& device) {
  return prepare_or_plan(request, out, mode_of_plan(request.call.kOp, linked, device, request.call.sizes));
}
#endif

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("transform", TORCH_BOX((raw_op<check_arguments, transform>)));
  m.impl("transform_out", TORCH_BOX((raw_op<check_arguments, transform_out>)));
  m.impl("_prepare_transform", TORCH_BOX((raw_op<check_arguments, prepare_transform>)));
  m.impl("_stream_transform", TORCH_BOX((streamed_op<check_arguments, transform_out>)));
}

#ifndef SLUICE_CUDA_LIBRARY
#define SLUICE_TRANSFORM_ARGUMENTS                                                                       \
  "Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, str schedule=\"auto\", " \
  "int? depth=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("transform(" SLUICE_TRANSFORM_ARGUMENTS ") -> Tensor");
  m.def("transform_out(" SLUICE_TRANSFORM_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("_prepare_transform(" SLUICE_TRANSFORM_ARGUMENTS ", Tensor? out=None) -> str");
  m.def("_stream_transform(" SLUICE_TRANSFORM_ARGUMENTS SLUICE_STREAMED_ARGUMENTS);
  m.def("_plan_transform(" SLUICE_TRANSFORM_ARGUMENTS ", Tensor? out=None, bool linked, int[] device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_plan_transform", TORCH_BOX((raw_op<check_arguments, plan_transform>)));
}
#endif

}  // namespace sluice
