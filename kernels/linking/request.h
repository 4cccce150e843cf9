// What is to be linked: a kernel of an embedded module, and the chains that it leaves open.
#pragma once

#include <cstddef>
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

// Bytes that tell requests apart, without memory of their own: a call makes some to look for what it runs.
class LinkKey {
 public:
  std::string_view view() const { return {bytes_, size_}; }
  void append(char byte) { bytes_[size_++] = byte; }
  void append(std::string_view bytes) { size_ += bytes.copy(bytes_ + size_, bytes.size()); }
  friend bool operator==(const LinkKey& a, const LinkKey& b) { return a.view() == b.view(); }

 private:
  static constexpr std::size_t kMostOfStage = 2 + sizeof(Stage::source) + 2 * kMaxParameters;
  static constexpr std::size_t kMostOfKernel = 128;  // its name (tests/cpp/test_linking.cpp) and the tensors' dtypes

  std::size_t size_ = 0;
  char bytes_[kMostOfKernel + 2 * (1 + kMaxStages * kMostOfStage)];  // not cleared
};

struct LinkRequest {
  std::string_view module;  // the name of one that is embedded (embedded.h); static storage, as the next
  std::string_view kernel;  // an extern "C" name in it
  bool wide = false;        // values are double, not float
  LinkedSlot pre = {}, post = {};
  DType dtypes[kLinkedTensors] = {};  // of those that the kernel has

  bool has_cpp() const;
  // Tells chains apart that need different code, and nothing else.
  LinkKey key() const;
};

template <int Rank>
LinkedSlot linked_slot(const Program& program, const Operand<Rank>* operands, int width, int slices) {
  LinkedSlot slot{&program, {}, width, slices};
  for (int k = 0; k < program.operands; ++k) slot.operand_dtypes[k] = operands[k].dtype;
  return slot;
}

}  // namespace sluice
