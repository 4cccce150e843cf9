#include "ops/transform_call.h"

#include "ops/common/allocate.h"
#include "ops/common/checks.h"

namespace sluice {

TransformCall::TransformCall(const Tensor& tensor, const std::optional<ScalarType>& wanted, const std::string& name,
                             const std::optional<int64_t>& depth)
    : input(tensor), sizes(sizes_of(input)) {
  check_floating(kOp, "input", input);
  schedule = check_schedule(kOp, name, depth);
  dtype = check_result_dtype(kOp, wanted);
  const bool keeps_strides = input.elements() > 0 && input.is_non_overlapping_and_dense();
  strides = keeps_strides ? std::vector<int64_t>(input.strides, input.strides + input.rank) : contiguous_strides(sizes);
}

TransformChain::TransformChain(const TransformCall& call, const std::string& text, const OptionalTensors& operands)
    : chain(call.kOp, "chain", text, operands, call.input, call.sizes),
      dtype(call.dtype.value_or(chain.result_dtype().value_or(call.input.dtype))) {
  chain.program.set_precision(call.input.dtype, dtype);
}

Tensor TransformChain::allocate_result(const TransformCall& call) const {
  return allocate(call.kOp, call.sizes, call.strides, dtype, call.input);
}

void TransformChain::check_result(const TransformCall& call, const TensorView& out, bool may_be_same) const {
  check_out(call.kOp, out, call.sizes, dtype, call.input);
  check_no_overlap(call.kOp, out, "input", call.input, may_be_same);
  chain.check_no_overlap(call.kOp, out, "an operand", may_be_same);
}

}  // namespace sluice
