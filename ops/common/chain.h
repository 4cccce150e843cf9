// A chain as an op takes it: its text and its operands, parsed, checked and broadcast.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/stages/program.h"
#include "ops/common/tensor_view.h"

namespace sluice {

using OptionalTensors = std::optional<std::vector<Tensor>>;

struct Chain {
  Program program;
  std::vector<TensorView> operands;

  // Parses `text`; operands must be floating, on the input's device and broadcast to `sizes`. `argument`
  // names the chain in errors ("chain", "pre", "post").
  Chain(const char* op, const char* argument, const std::string& text, const OptionalTensors& tensors, const TensorView& input,
        const std::vector<int64_t>& sizes);

  bool empty() const { return program.empty(); }
  // Raises where a stage has a linked form only.
  void check_interpreted(const char* op) const;
  // The dtype of a last `cast`, which sets the result's.
  std::optional<DType> result_dtype() const;
  // Operand k's strides over dimensions of extents `sizes`: 0 where it is broadcast.
  std::vector<int64_t> strides(std::size_t k, const std::vector<int64_t>& sizes) const;
};

}  // namespace sluice
