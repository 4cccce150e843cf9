#include "ops/common/chain.h"

#include <torch/csrc/stable/library.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <memory>

#include "kernels/stages/parse.h"
#include "kernels/stages/signatures.h"
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

// A text and its program; a model calls with few texts, over and over.
struct Parsed {
  std::string text;
  int64_t operands = -1;  // given with it; -1: empty
  Program program;
};

// This thread's cache of parsed texts: the bucket may hold another text.
Parsed& lately_parsed(const std::string& text) {
  constexpr std::size_t kTexts = 32;
  thread_local const std::unique_ptr<Parsed[]> buckets(new Parsed[kTexts]);
  return buckets[std::hash<std::string>()(text) % kTexts];
}

// The only way from a chain's text to its program.
const Program& checked_program(const char* op, const char* argument, const std::string& text, int64_t operands) {
  check(operands <= kMaxOperands, op, ": ", argument, " must have at most ", kMaxOperands, " tensor operands, got ",
        operands);
  Parsed& bucket = lately_parsed(text);
  if (bucket.operands != operands || bucket.text != text) {
    bucket.operands = -1;
    const std::string broken = parse_chain(text, static_cast<int>(operands), bucket.program);
    check(broken.empty(), op, ": ", argument, " must be a chain of stages: ", broken);
    bucket.text = text;
    bucket.operands = operands;
  }
  return bucket.program;
}

std::optional<DType> last_cast(const Program& program) {
  if (program.empty() || program.stages[program.count - 1].op != Op::cast) return std::nullopt;
  return program.stages[program.count - 1].dtype;
}

}  // namespace

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

std::optional<DType> Chain::result_dtype() const { return last_cast(program); }

std::vector<int64_t> Chain::strides(std::size_t k, const std::vector<int64_t>& sizes) const {
  const TensorView& operand = operands[k];
  std::vector<int64_t> strides(sizes.size(), 0);
  for (int64_t d = 0; d < operand.rank; ++d) {
    if (operand.sizes[d] != 1) strides[sizes.size() - operand.rank + d] = operand.strides[d];
  }
  return strides;
}

#ifndef SLUICE_CUDA_LIBRARY
namespace {

// For fake kernels, which have no tensors for a Chain: the name of the dtype that a chain gives its result, empty for
// the input's. Refuses a broken text with the op's own message.
std::string chain_cast(const std::string& op, const std::string& argument, const std::string& text, int64_t operands) {
  const std::optional<DType> dtype = last_cast(checked_program(op.c_str(), argument.c_str(), text, operands));
  return dtype.has_value() ? name_of(*dtype) : "";
}

int64_t most_operands() { return kMaxOperands; }

std::string shortest_text(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

// The table of stages for Python, one per line: "add(other,alpha=1)". A parameter without a default is required.
std::string stage_signatures() {
  std::string text;
  for (const StageSignature& signature : kSignatures) {
    text += std::string(signature.name) + "(";
    for (int p = 0; p < signature.parameters(); ++p) {
      const auto& [name, number] = signature.parameter[p];
      text += (p > 0 ? "," : "") + std::string(name);
      if (!std::isnan(number)) text += "=" + shortest_text(number);
    }
    text += ")\n";
  }
  return text;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("_chain_cast(str op, str argument, str chain, int operands) -> str");
  m.def("_most_operands() -> int");
  m.def("_stage_signatures() -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_chain_cast", TORCH_BOX(&chain_cast));
  m.impl("_most_operands", TORCH_BOX(&most_operands));
  m.impl("_stage_signatures", TORCH_BOX(&stage_signatures));
}
#endif

}  // namespace sluice
