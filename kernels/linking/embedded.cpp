#include "kernels/linking/embedded.h"

#include "kernels/shared/common/architectures.h"

// SLUICE_SOURCES and SLUICE_MODULES are the directories of the sources and of the built fatbins; embedded.inc, which
// CMakeLists.txt writes, has a row for each file:
//
//   SLUICE_HEADER(symbol, "path")
//   SLUICE_MODULE(name, "architectures", "the architecture that later devices also run, or none")
#define SLUICE_EMBED(symbol, path)                                                     \
  asm(".pushsection .rodata\n.balign 16\n" #symbol ":\n.incbin \"" path "\"\n" #symbol \
      "_end:\n.byte 0\n.popsection\n");                                                \
  extern "C" __attribute__((visibility("hidden"))) const char symbol[], symbol##_end[]

#define SLUICE_HEADER(symbol, path) SLUICE_EMBED(sluice_header_##symbol, SLUICE_SOURCES "/" path);
#define SLUICE_MODULE(name, ...) SLUICE_EMBED(sluice_module_##name, SLUICE_MODULES "/" #name ".fatbin");
#include "embedded.inc"
#undef SLUICE_HEADER
#undef SLUICE_MODULE

namespace sluice {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

struct Module {
  EmbeddedFile file;
  const char* architectures;
  const char* ptx;
};

const Module* module_of(std::string_view name) {
#define SLUICE_HEADER(...)
#define SLUICE_MODULE(name, architectures, ptx) \
  {{#name, between(sluice_module_##name, sluice_module_##name##_end)}, architectures, ptx},
  static const Module modules[] = {
#include "embedded.inc"
  };
#undef SLUICE_HEADER
#undef SLUICE_MODULE
  for (const Module& module : modules) {
    if (module.file.name == name) return &module;
  }
  return nullptr;
}

}  // namespace

std::span<const EmbeddedFile> embedded_headers() {
#define SLUICE_HEADER(symbol, path) {path, between(sluice_header_##symbol, sluice_header_##symbol##_end)},
#define SLUICE_MODULE(...)
  static const EmbeddedFile headers[] = {
#include "embedded.inc"
  };
#undef SLUICE_HEADER
#undef SLUICE_MODULE
  return headers;
}

EmbeddedFile embedded_module(std::string_view name) {
  const Module* const module = module_of(name);
  return module == nullptr ? EmbeddedFile{"", {}} : module->file;
}

std::string_view module_architecture(std::string_view name, int compute_capability) {
  const Module* const module = module_of(name);
  return module == nullptr ? std::string_view()
                           : code_architecture(compute_capability, module->architectures, module->ptx);
}

}  // namespace sluice
