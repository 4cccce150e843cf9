// A chain as an op takes it: its text and its operands, parsed, checked and broadcast.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/shared/stages/program.h"
#include "ops/common/tensor_view.h"

namespace sluice {

using OptionalTensors = std::optional<std::vector<Tensor>>;

// A tensor of one number per channel as an operand over (batch, channel, position): its sizes and strides there.
class ChannelOperand {
 public:
  explicit ChannelOperand(const Tensor& tensor)
      : tensor_(tensor), sizes_{tensor.size(0), 1}, strides_{tensor.stride(0), 0} {}

  // Valid as long as this object.
  TensorView view() const {
    TensorView view = tensor_;
    view.rank = 2, view.sizes = sizes_.data(), view.strides = strides_.data();
    return view;
  }

 private:
  TensorView tensor_;
  std::vector<int64_t> sizes_, strides_;
};

// The only way from a chain's text to its program. Refuses a broken text; the program is this thread's, until the next
// call. `argument`: the chain's name in errors.
const Program& checked_program(const char* op, const char* argument, const std::string& text, int64_t operands);

// The dtype of a last `cast`, which sets the result's.
std::optional<DType> last_cast(const Program& program);

struct Chain {
  Program program;
  std::vector<TensorView> operands;

  Chain() = default;  // without stages
  // Parses `text`; operands must be floating, on the input's device and broadcast to `sizes`. `argument`
  // names the chain in errors ("chain", "pre", "post").
  Chain(const char* op, const char* argument, const std::string& text, const OptionalTensors& tensors,
        const TensorView& input, const std::vector<int64_t>& sizes);

  bool empty() const { return program.empty(); }
  void clear() { program = {}, operands.clear(); }
  // Adds a tensor before all stages; false if it does not fit.
  bool prepend_addition(const TensorView& tensor);
  // Raises if a stage has only a linked form.
  void check_interpreted(const char* op) const;
  // Raises if `out` shares memory with an operand, unless `may_be_same` and it is that tensor. `operand` names one in
  // the error.
  void check_no_overlap(const char* op, const TensorView& out, const char* operand, bool may_be_same) const;
  std::optional<DType> result_dtype() const { return last_cast(program); }
  // Operand k's strides over dimensions of extents `sizes`: 0 where it is broadcast.
  std::vector<int64_t> strides(std::size_t k, const std::vector<int64_t>& sizes) const;

  // Writes the chain into a kernel's params. `strides_of(k)` gives operand k's strides over the kernel's dimensions.
  template <int Rank, class StridesOf>
  void fill(Program& to, Operand<Rank>* to_operands, const StridesOf& strides_of) const {
    to = program;
    for (std::size_t k = 0; k < operands.size(); ++k) to_operands[k] = operand_of<Rank>(operands[k], strides_of(k));
  }
};

}  // namespace sluice
