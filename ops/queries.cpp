// What Python's fake kernels and checks ask: the rules for chains, schedules and memory.
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "kernels/shared/common/architectures.h"
#include "kernels/shared/stages/signatures.h"
#include "ops/common/chain.h"
#include "ops/common/checks.h"
#include "ops/common/overlap.h"
#include "ops/ops.h"

namespace sluice {
namespace {

// Fake kernels have no tensors for a Chain. Returns the name of the dtype that a chain gives its result, empty for the
// input's. Refuses a broken text with the op's own message.
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

void check_schedule_of(const std::string& op, const std::string& schedule, const std::optional<int64_t>& depth) {
  check_schedule(op.c_str(), schedule, depth);
}

// The library's code that a GPU runs, for `python -m sluice info`: "90a", "80, PTX", or nothing.
std::string code_of(int64_t compute_capability) {
  const auto capability = static_cast<int>(compute_capability);
  return std::string(code_architecture(capability)) + (runs_ptx(capability) ? ", PTX" : "");
}

bool overlap_of(const Tensor& a, const Tensor& b) { return overlap(TensorView(a), TensorView(b)); }
bool overlaps_itself_of(const Tensor& tensor) { return overlaps_itself(TensorView(tensor)); }

void define(Library& m) {
  m.def("_chain_cast(str op, str argument, str chain, int operands) -> str");
  m.def("_most_operands() -> int");
  m.def("_stage_signatures() -> str");
  m.def("_check_schedule(str op, str schedule, int? depth) -> ()");
  m.def("_code_of(int compute_capability) -> str");
  m.def("_overlap(Tensor a, Tensor b) -> bool");
  m.def("_overlaps_itself(Tensor tensor) -> bool");
}

void implement_everywhere(Library& m) {
  m.impl("_chain_cast", TORCH_BOX(&chain_cast));
  m.impl("_most_operands", TORCH_BOX(&most_operands));
  m.impl("_stage_signatures", TORCH_BOX(&stage_signatures));
  m.impl("_check_schedule", TORCH_BOX(&check_schedule_of));
  m.impl("_code_of", TORCH_BOX(&code_of));
  m.impl("_overlap", TORCH_BOX(&overlap_of));
  m.impl("_overlaps_itself", TORCH_BOX(&overlaps_itself_of));
}

}  // namespace

const Registration kQueries{.define = define, .implement_everywhere = implement_everywhere};

}  // namespace sluice
