// The namespace torch.ops.sluice in _C: schemas, kernels for the CPU, and what needs no device.
#include <string>

#include "kernels/shared/cpu/instruction_set.h"
#include "ops/common/checks.h"
#include "ops/ops.h"

namespace sluice {
namespace {

// This library's build, for `python -m sluice info`.
std::string build_info() { return SLUICE_BUILD_INFO; }

std::string current_instruction_set() { return name_of(instruction_set()); }

void set_instruction_set(const std::string& name) {
  check(use_instruction_set(name), "sluice: the instruction set must be one of this machine's (",
        usable_instruction_sets(), "), got ", name);
}

}  // namespace

STABLE_TORCH_LIBRARY(sluice, m) {
  for (const Registration* op : kOps) op->define(m);
  m.def("_build_info() -> str");
  m.def("_instruction_sets() -> str");
  m.def("_instruction_set() -> str");
  m.def("_set_instruction_set(str name) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CPU, m) {
  for (const Registration* op : kOps) op->implement(m);
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  for (const Registration* op : kOps) op->implement_everywhere(m);
  m.impl("_build_info", TORCH_BOX(&build_info));
  m.impl("_instruction_sets", TORCH_BOX(&usable_instruction_sets));
  m.impl("_instruction_set", TORCH_BOX(&current_instruction_set));
  m.impl("_set_instruction_set", TORCH_BOX(&set_instruction_set));
}

}  // namespace sluice
