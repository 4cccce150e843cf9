// A chain's structure -> the CUDA source that the linker compiles for it. Numbers, pointers, sizes and strides are the
// kernel's arguments and leave no trace in the source.
#pragma once

#include <string>

#include "kernels/linking/request.h"

namespace sluice {

std::string chain_source(const LinkRequest& request);

// What NVRTC said about `source`, told in terms of the user's own stages where it is about one of them.
std::string explain_log(const LinkRequest& request, const std::string& log);

}  // namespace sluice
