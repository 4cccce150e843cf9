// The namespace torch.ops.sluice. Each op's own file defines its schema and registers its kernels.
#include <torch/csrc/stable/library.h>

#include <string>

namespace sluice {
namespace {

// What this library was built as, for `python -m sluice info`.
std::string build_info() { return SLUICE_BUILD_INFO; }

}  // namespace

STABLE_TORCH_LIBRARY(sluice, m) { m.def("_build_info() -> str"); }

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) { m.impl("_build_info", TORCH_BOX(&build_info)); }

}  // namespace sluice
