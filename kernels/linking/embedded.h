// Files that the build embeds in the library: LTO modules (kernels as LTO-IR), and headers of a chain's source.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct EmbeddedFile {
  const char* name;
  std::string_view data;  // a header's is followed by a zero
};

std::span<const EmbeddedFile> embedded_headers();

// By the name in a LinkRequest.
EmbeddedFile embedded_module(std::string_view name);

// nvcc's name of the architecture of the module's code for a device; empty if none of its code runs there.
std::string_view module_architecture(std::string_view name, int compute_capability);
inline bool has_code(std::string_view module, int compute_capability) {
  return !module_architecture(module, compute_capability).empty();
}

}  // namespace sluice
