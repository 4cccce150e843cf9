// Files that the build puts into the library: kernels as LTO-IR, and the headers that a chain's source includes.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct EmbeddedFile {
  const char* name;
  std::string_view data;  // a header's is followed by a zero
};

std::span<const EmbeddedFile> embedded_headers();

// By the name that a LinkRequest has for it.
EmbeddedFile embedded_module(std::string_view name);

// The architecture, as nvcc names it, of the module's code for a device; empty where none of it runs there.
std::string_view module_architecture(std::string_view name, int compute_capability);
inline bool has_code(std::string_view module, int compute_capability) {
  return !module_architecture(module, compute_capability).empty();
}

}  // namespace sluice
