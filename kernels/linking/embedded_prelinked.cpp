#include "kernels/linking/prelinked.h"

// prelinked.inc, which CMakeLists.txt writes, has a line for each file: .incbin "path".
asm(".pushsection .rodata\n.balign 16\nsluice_prelinked:\n"
#include "prelinked.inc"
    "sluice_prelinked_end:\n.byte 0\n.popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char sluice_prelinked[], sluice_prelinked_end[];

namespace sluice {

std::string_view prelinked_kernels() {
  return {sluice_prelinked, static_cast<std::size_t>(sluice_prelinked_end - sluice_prelinked)};
}

}  // namespace sluice
