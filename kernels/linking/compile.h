// Source -> LTO-IR (NVRTC) -> cubin, together with the kernel's own LTO-IR (nvJitLink).
#pragma once

#include <string>

#include "kernels/linking/link_table.h"
#include "kernels/linking/request.h"

namespace sluice {

struct Compilation {
  std::string cubin;
  LinkFault fault = LinkFault::none;
  std::string error;  // empty where the cubin is there
};

// `compute_capability` is major * 10 + minor of the device. Needs link_libraries() to be available.
Compilation compile_chain(const LinkRequest& request, const std::string& source, int compute_capability);

// What the result depends on beside the source: libraries, options, the kernel's LTO-IR.
std::string compile_fingerprint(const LinkRequest& request, int compute_capability);

// Of what was linked when the library was built (prelinked.h): a digest of the options, which name kernel and device,
// and the source. Headers and LTO-IR are those that the library carries itself; which NVRTC and nvJitLink it was does
// not count, because all of them give the interpreter's bits.
std::string prelinked_name(const LinkRequest& request, const std::string& source, int compute_capability);

}  // namespace sluice
