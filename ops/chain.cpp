#include "ops/chain.h"

#include "kernels/stages/parse.h"
#include "ops/checks.h"

namespace sluice {

Chain::Chain(const char* op, const char* argument, const std::string& text, const OptionalTensors& tensors,
             const TensorView& input, const std::vector<int64_t>& sizes) {
  const int count = tensors.has_value() ? static_cast<int>(tensors->size()) : 0;
  check(count <= kMaxOperands, op, ": ", argument, " must have at most ", kMaxOperands, " tensor operands, got ", count);
  const std::string broken = parse_chain(text, count, program);
  check(broken.empty(), op, ": ", argument, " must be a chain of stages: ", broken);
  operands.reserve(count);
  for (int k = 0; k < count; ++k) {
    const TensorView& operand = operands.emplace_back((*tensors)[k]);
    const std::string name = std::string(argument) + " operand " + std::to_string(k);
    check_floating(op, name.c_str(), operand);
    check_device(op, name.c_str(), operand, input);
    bool broadcasts = operand.rank <= static_cast<int64_t>(sizes.size());
    for (int64_t d = 0; broadcasts && d < operand.rank; ++d) {
      const int64_t size = sizes[sizes.size() - operand.rank + d];
      broadcasts = operand.sizes[d] == size || operand.sizes[d] == 1;
    }
    check(broadcasts, op, ": ", name, " must broadcast to the result's shape ", shape_text(sizes), ", got ", operand.shape());
  }
}

void Chain::check_interpreted(const char* op) const {
  check(!program.has_cpp(), op, ": a cpp stage must run on a CUDA device, or be given a reference= for the CPU, which the ",
        "public functions use and the raw ops do not");
}

std::optional<DType> Chain::result_dtype() const {
  if (program.empty() || program.stages[program.count - 1].op != Op::cast) return std::nullopt;
  return program.stages[program.count - 1].dtype;
}

std::vector<int64_t> Chain::strides(std::size_t k, const std::vector<int64_t>& sizes) const {
  const TensorView& operand = operands[k];
  std::vector<int64_t> strides(sizes.size(), 0);
  for (int64_t d = 0; d < operand.rank; ++d) {
    if (operand.sizes[d] != 1) strides[sizes.size() - operand.rank + d] = operand.strides[d];
  }
  return strides;
}

}  // namespace sluice
