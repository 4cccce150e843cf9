#include "ops/common/chain.h"

#include <functional>
#include <string_view>

#include "kernels/shared/common/remembered.h"
#include "kernels/shared/stages/parse.h"
#include "ops/common/checks.h"

namespace sluice {
namespace {

// Names a chain's tensor in a message.
struct OperandText {
  const char* argument;
  int index;
};

std::ostream& operator<<(std::ostream& text, const OperandText& operand) {
  return text << operand.argument << " operand " << operand.index;
}

// A chain's text, and the number of tensors given with it.
struct ChainText {
  std::string_view text;
  int64_t operands;
};
struct KeptText {
  std::string text;
  int64_t operands = 0;

  KeptText() = default;
  explicit KeptText(const ChainText& given) : text(given.text), operands(given.operands) {}
  bool operator==(const ChainText& given) const { return operands == given.operands && text == given.text; }
};

}  // namespace

const Program& checked_program(const char* op, const char* argument, const std::string& text, int64_t operands) {
  check(operands <= kMaxOperands, op, ": ", argument, " must have at most ", kMaxOperands, " tensor operands, got ",
        operands);
  return remembered<Program, KeptText>(ChainText{text, operands}, std::hash<std::string>()(text), [&] {
    Program program;
    const std::string broken = parse_chain(text, static_cast<int>(operands), program);
    check(broken.empty(), op, ": ", argument, " must be a chain of stages: ", broken);
    return program;
  });
}

std::optional<DType> last_cast(const Program& program) {
  if (program.empty() || program.stages[program.count - 1].op != Op::cast) return std::nullopt;
  return program.stages[program.count - 1].dtype;
}

Chain::Chain(const char* op, const char* argument, const std::string& text, const OptionalTensors& tensors,
             const TensorView& input, const std::vector<int64_t>& sizes)
    : program(checked_program(op, argument, text, tensors.has_value() ? static_cast<int64_t>(tensors->size()) : 0)) {
  const int count = tensors.has_value() ? static_cast<int>(tensors->size()) : 0;
  operands.reserve(count);
  for (int k = 0; k < count; ++k) {
    const TensorView& operand = operands.emplace_back((*tensors)[k]);
    const OperandText name{argument, k};
    check_floating(op, name, operand);
    check_device(op, name, operand, input);
    bool broadcasts = operand.rank <= static_cast<int64_t>(sizes.size());
    for (int64_t d = 0; broadcasts && d < operand.rank; ++d) {
      const int64_t size = sizes[sizes.size() - operand.rank + d];
      broadcasts = operand.sizes[d] == size || operand.sizes[d] == 1;
    }
    check(broadcasts, op, ": ", name, " must broadcast to the result's shape ", ShapeText{sizes}, ", got ",
          operand.shape());
  }
}

bool Chain::prepend_addition(const TensorView& tensor) {
  if (!program.prepend_addition()) return false;
  operands.insert(operands.begin() + (program.operands - 1), tensor);
  return true;
}

void Chain::check_interpreted(const char* op) const {
  check(!program.has_cpp(), op, ": a cpp stage must run on a CUDA device, because raw ops do not use its reference=; ",
        "the public functions do");
}

void Chain::check_no_overlap(const char* op, const TensorView& out, const char* operand, bool may_be_same) const {
  for (const TensorView& one : operands) sluice::check_no_overlap(op, out, operand, one, may_be_same);
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
