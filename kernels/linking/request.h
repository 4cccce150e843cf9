// What is to be linked: a kernel of an embedded module, and the chains that it leaves open.
#pragma once

#include <string>
#include <string_view>

#include "kernels/stages/linked_tensor.h"
#include "kernels/stages/program.h"

namespace sluice {

// A chain as its kernel calls it: on `slices` of `width` values each.
struct LinkedSlot {
  const Program* program = nullptr;  // null: the kernel has no such chain
  DType operand_dtypes[kMaxOperands] = {};
  int width = 0;
  int slices = 0;
};

struct LinkRequest {
  std::string_view module;  // the name of one that is embedded (embedded.h); static storage, as the next
  std::string_view kernel;  // an extern "C" name in it
  bool wide = false;        // values are double, not float
  LinkedSlot pre = {}, post = {};
  DType dtypes[kLinkedTensors] = {};  // of those that the kernel has

  bool has_cpp() const;
  // Tells chains apart that need different code, and nothing else.
  std::string key() const;
};

template <int Rank>
LinkedSlot linked_slot(const Program& program, const Operand<Rank>* operands, int width, int slices) {
  LinkedSlot slot{&program, {}, width, slices};
  for (int k = 0; k < program.operands; ++k) slot.operand_dtypes[k] = operands[k].dtype;
  return slot;
}

}  // namespace sluice
