#include "kernels/linking/embedded.h"

// SLUICE_SOURCES and SLUICE_MODULES are the directories of the sources and of the built fatbins.
#define SLUICE_EMBED(symbol, path)                                    \
  asm(".pushsection .rodata\n.balign 16\n" #symbol ":\n.incbin \"" path \
      "\"\n" #symbol "_end:\n.byte 0\n.popsection\n");                \
  extern "C" __attribute__((visibility("hidden"))) const char symbol[], symbol##_end[]

SLUICE_EMBED(sluice_module_transform, SLUICE_MODULES "/transform.fatbin");
SLUICE_EMBED(sluice_module_conv1d_rows, SLUICE_MODULES "/conv1d_rows.fatbin");
SLUICE_EMBED(sluice_module_conv1d_channels, SLUICE_MODULES "/conv1d_channels.fatbin");
SLUICE_EMBED(sluice_header_dtype, SLUICE_SOURCES "/kernels/common/dtype.h");
SLUICE_EMBED(sluice_header_qualifiers, SLUICE_SOURCES "/kernels/common/qualifiers.h");
SLUICE_EMBED(sluice_header_stage_list, SLUICE_SOURCES "/kernels/stages/stage_list.h");
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
      {"kernels/stages/functors.h", between(sluice_header_functors, sluice_header_functors_end)},
      {"kernels/stages/place.h", between(sluice_header_place, sluice_header_place_end)},
      {"kernels/linking/chain_runtime.cuh", between(sluice_header_runtime, sluice_header_runtime_end)},
  };
  return headers;
}

EmbeddedFile embedded_module(LinkModule module) {
  switch (module) {
    case LinkModule::transform: return {"transform", between(sluice_module_transform, sluice_module_transform_end)};
    case LinkModule::conv1d_rows: return {"conv1d_rows", between(sluice_module_conv1d_rows, sluice_module_conv1d_rows_end)};
    case LinkModule::conv1d_channels: break;
  }
  return {"conv1d_channels", between(sluice_module_conv1d_channels, sluice_module_conv1d_channels_end)};
}

}  // namespace sluice
