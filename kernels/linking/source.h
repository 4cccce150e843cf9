// A chain's structure -> the CUDA source that the linker compiles for it. Numbers, pointers, sizes and strides are
// arguments of the kernel and not part of the source.
#pragma once

#include <string>

#include "kernels/linking/request.h"

namespace sluice {

std::string chain_source(const LinkRequest& request);

// NVRTC's log about `source`, in terms of the user's own stages if it is about one of them.
std::string explain_log(const LinkRequest& request, const std::string& log);

}  // namespace sluice
