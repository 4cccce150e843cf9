#include "kernels/linking/embedded.h"

// SLUICE_SOURCES and SLUICE_MODULES are the directories of the sources and of the built fatbins.
#define SLUICE_EMBED(symbol, path)                                                                                       \
  asm(".pushsection .rodata\n.balign 16\n" #symbol ":\n.incbin \"" path "\"\n" #symbol "_end:\n.byte 0\n.popsection\n"); \
  extern "C" __attribute__((visibility("hidden"))) const char symbol[], symbol##_end[]

#define SLUICE_EMBED_MODULE(name) SLUICE_EMBED(sluice_module_##name, SLUICE_MODULES "/" #name ".fatbin")
#define SLUICE_EMBED_DTYPE(family, dtype)         \
  SLUICE_EMBED_MODULE(family##_##dtype##_direct); \
  SLUICE_EMBED_MODULE(family##_##dtype##_ring)
#define SLUICE_EMBED_FAMILY(family)     \
  SLUICE_EMBED_DTYPE(family, float32);  \
  SLUICE_EMBED_DTYPE(family, float16);  \
  SLUICE_EMBED_DTYPE(family, bfloat16); \
  SLUICE_EMBED_DTYPE(family, float64)

SLUICE_EMBED_FAMILY(transform);
SLUICE_EMBED_FAMILY(conv1d_rows);
SLUICE_EMBED_FAMILY(conv1d_channels);
SLUICE_EMBED_FAMILY(filter2d);
SLUICE_EMBED(sluice_header_dtype, SLUICE_SOURCES "/kernels/common/dtype.h");
SLUICE_EMBED(sluice_header_qualifiers, SLUICE_SOURCES "/kernels/common/qualifiers.h");
SLUICE_EMBED(sluice_header_stage_list, SLUICE_SOURCES "/kernels/stages/stage_list.h");
SLUICE_EMBED(sluice_header_stages, SLUICE_SOURCES "/kernels/stages/stages.def");
SLUICE_EMBED(sluice_header_functors, SLUICE_SOURCES "/kernels/stages/functors.h");
SLUICE_EMBED(sluice_header_place, SLUICE_SOURCES "/kernels/stages/place.h");
SLUICE_EMBED(sluice_header_runtime, SLUICE_SOURCES "/kernels/linking/chain_runtime.cuh");

namespace sluice {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

const EmbeddedFile* embedded_headers() {
  static const EmbeddedFile headers[kEmbeddedHeaders] = {
      {"kernels/common/dtype.h", between(sluice_header_dtype, sluice_header_dtype_end)},
      {"kernels/common/qualifiers.h", between(sluice_header_qualifiers, sluice_header_qualifiers_end)},
      {"kernels/stages/stage_list.h", between(sluice_header_stage_list, sluice_header_stage_list_end)},
      {"kernels/stages/stages.def", between(sluice_header_stages, sluice_header_stages_end)},
      {"kernels/stages/functors.h", between(sluice_header_functors, sluice_header_functors_end)},
      {"kernels/stages/place.h", between(sluice_header_place, sluice_header_place_end)},
      {"kernels/linking/chain_runtime.cuh", between(sluice_header_runtime, sluice_header_runtime_end)},
  };
  return headers;
}

EmbeddedFile embedded_module(const LinkModule& module) {
#define SLUICE_FILE(name) {#name, between(sluice_module_##name, sluice_module_##name##_end)}
#define SLUICE_DTYPE(family, dtype) {SLUICE_FILE(family##_##dtype##_direct), SLUICE_FILE(family##_##dtype##_ring)}
#define SLUICE_FAMILY(family)                                                                                                   \
  {                                                                                                                             \
    SLUICE_DTYPE(family, float32), SLUICE_DTYPE(family, float16), SLUICE_DTYPE(family, bfloat16), SLUICE_DTYPE(family, float64) \
  }
  static const EmbeddedFile files[kLinkFamilies][4][2] = {SLUICE_FAMILY(transform), SLUICE_FAMILY(conv1d_rows),
                                                          SLUICE_FAMILY(conv1d_channels), SLUICE_FAMILY(filter2d)};
  return files[static_cast<int>(module.family)][static_cast<int>(module.dtype)][module.ring];
}

}  // namespace sluice
