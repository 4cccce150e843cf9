// Source -> LTO-IR (NVRTC) -> cubin, together with the kernel's LTO-IR (nvJitLink).
#pragma once

#include <string>

#include "kernels/linking/link_table.h"
#include "kernels/linking/request.h"

namespace sluice {

struct Compilation {
  std::string cubin;
  LinkFault fault = LinkFault::none;
  std::string error;  // empty if there is a cubin
};

// `compute_capability` is the device's major * 10 + minor. Requires link_libraries() to be available.
Compilation compile_chain(const LinkRequest& request, const std::string& source, int compute_capability);

// Everything else that the result depends on: libraries, options, the kernel's LTO-IR.
std::string compile_fingerprint(const LinkRequest& request, int compute_capability);

// The name of a kernel linked when the library was built (prelinked.h): a digest of the options, which name kernel and
// device, and the source. Headers and LTO-IR are the library's own; the versions of NVRTC and nvJitLink do not count,
// because all of them give the interpreter's bits.
std::string prelinked_name(const LinkRequest& request, const std::string& source, int compute_capability);

}  // namespace sluice
