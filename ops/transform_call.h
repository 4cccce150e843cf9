// The arguments of transform and of transform_many, checked.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"

namespace sluice {

// What every form of transform is called with beside its chains.
struct TransformCall {
  static constexpr const char* kOp = "transform";

  TensorView input;
  std::optional<DType> dtype;  // that the caller asked for
  ScheduleRequest schedule;
  // Of the results: the input's shape, with the input's strides where it is dense, else contiguous.
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
  // One that nobody has allocated.
  TensorView result(const TransformCall& call) const { return {call.input, call.sizes, call.strides, dtype}; }
  // `may_be_same`: the result may take the place of the input or of an operand.
  void check_result(const TransformCall& call, const TensorView& out, bool may_be_same) const;
};

}  // namespace sluice
