// What other ops use of transform: one pass of a chain from a tensor into another.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"
#include "ops/common/link.h"

namespace sluice {

// output = chain(input) on the input's device and torch's current stream. Shapes are equal and checked. Returns why the
// chain was not linked; empty where it was.
std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, Run run = Run::now);

// The same where it can run linked; elsewhere nothing is done.
std::string run_linked_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                                 const ScheduleRequest& request, Run run);

// What every form of transform is called with beside its chains, checked.
struct TransformCall {
  TensorView input;
  std::optional<DType> dtype;  // that the caller asked for
  ScheduleRequest schedule;

  TransformCall(const Tensor& input, const std::optional<ScalarType>& dtype, const std::string& schedule,
                const std::optional<int64_t>& depth);
};

// One of its chains, parsed, and the dtype of its result.
struct TransformChain {
  Chain chain;
  DType dtype;

  TransformChain(const TransformCall& call, const std::string& text, const OptionalTensors& operands);
  // `may_be_same`: the result may take the place of the input or of an operand.
  void check_result(const TransformCall& call, const TensorView& out, bool may_be_same) const;
};

// A tensor of the input's shape: with the input's strides where it is dense, else contiguous.
Tensor allocate_like(const char* op, const TensorView& input, DType dtype);

}  // namespace sluice
