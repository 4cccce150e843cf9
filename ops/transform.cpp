// transform: a chain over a tensor, in one pass.
#include <utility>

#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/transform_call.h"

namespace sluice {
namespace {

constexpr char kOp[] = "transform";

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

std::string answer(const Request& request, const std::optional<Tensor>& out, const CallMode& mode) {
  check_planned(kOp, mode, request.call.sizes);
  if (!out.has_value()) return request.run(request.chain.result(request.call), mode);
  const TensorView view(*out);
  request.chain.check_result(request.call, view, /*may_be_same=*/true);
  return request.run(view, mode);
}

constexpr char kArguments[] =
    "Tensor input, str chain, Tensor[]? operands=None, *, ScalarType? dtype=None, str schedule=\"auto\", "
    "int? depth=None";

}  // namespace

const Registration kTransform =
    Entries<kOp, kArguments, check_arguments, transform, transform_out, answer>::kRegistration;

}  // namespace sluice
