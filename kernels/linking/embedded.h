// Files that the build puts into the library: kernels as LTO-IR, and the headers that a chain's source includes.
#pragma once

#include <string_view>

#include "kernels/linking/request.h"

namespace sluice {

struct EmbeddedFile {
  const char* name;
  std::string_view data;  // a header's is followed by a zero
};

inline constexpr int kEmbeddedHeaders = 7;
const EmbeddedFile* embedded_headers();
EmbeddedFile embedded_module(const LinkModule& module);

}  // namespace sluice
