// The arguments of transform and of transform_many, checked.
#pragma once

#include "kernels/shared/pipeline/schedule.h"
#include "ops/common/chain.h"

namespace sluice {

// Arguments of all entries of transform, without their chains.
struct TransformCall {
  static constexpr const char* kOp = "transform";

  TensorView input;
  std::optional<DType> dtype;  // the caller's
  ScheduleRequest schedule;
  // The results': the input's sizes and, if it is non-overlapping and dense, its strides, else contiguous strides.
  std::vector<int64_t> sizes, strides;

  TransformCall(const Tensor& input, const std::optional<ScalarType>& dtype, const std::string& schedule,
                const std::optional<int64_t>& depth);
};

// One of its chains, parsed, and the dtype of its result.
struct TransformChain {
  Chain chain;
  DType dtype;

  TransformChain(const TransformCall& call, const std::string& text, const OptionalTensors& operands);
  Tensor allocate_result(const TransformCall& call) const;
  // A result that is not allocated.
  TensorView result(const TransformCall& call) const { return {call.input, call.sizes, call.strides, dtype}; }
  // `may_be_same`: the result may overwrite the input or an operand.
  void check_result(const TransformCall& call, const TensorView& out, bool may_be_same) const;
};

}  // namespace sluice
