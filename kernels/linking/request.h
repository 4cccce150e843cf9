// A link request: a kernel of an embedded module, and the chains that it leaves open.
#pragma once

#include <cstddef>
#include <string_view>

#include "kernels/shared/stages/linked_tensor.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// A chain as its kernel calls it: on `slices` of `width` values each.
struct ChainCall {
  const Program* program = nullptr;  // null: the kernel has no such chain
  DType operand_dtypes[kMaxOperands] = {};
  int width = 0;  // 0: likewise
  int slices = 0;
};

// Bytes that distinguish requests, without allocation: a call makes some to look up its kernel.
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
  std::string_view module;  // the name of an embedded module (embedded.h); static storage, as is `kernel`
  std::string_view kernel;  // an extern "C" name in it
  bool wide = false;        // values are double, not float
  ChainCall pre = {}, post = {};
  DType dtypes[kLinkedTensors] = {};  // dtypes of the kernel's tensors

  bool has_cpp() const;
  // Differs only between chains that need different code.
  LinkKey key() const;
};

// The program of a chain, if the kernel has it.
template <int Rank>
void set_chain(ChainCall& call, const Program& program, const Operand<Rank>* operands) {
  if (call.width == 0) return;
  call.program = &program;
  for (int k = 0; k < program.operands; ++k) call.operand_dtypes[k] = operands[k].dtype;
}

// Both chains of a kernel's params.
template <class Params>
void set_chains(LinkRequest& request, const Params& params) {
  set_chain(request.pre, params.pre, params.pre_operands);
  set_chain(request.post, params.post, params.post_operands);
}

}  // namespace sluice
