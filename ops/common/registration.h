// How a file of ops/ is registered: _C and _C_cuda each contain all of them, and call what each needs (ops/ops.h).
#pragma once

#include <torch/csrc/stable/library.h>

namespace sluice {

using Library = torch::stable::detail::StableLibrary;

struct Registration {
  void (*define)(Library&);                                  // schemas
  void (*implement)(Library&) = [](Library&) {};             // on the library's device
  void (*implement_everywhere)(Library&) = [](Library&) {};  // the same for every device: plans and checks
};

}  // namespace sluice
