// NVRTC and nvJitLink of this process. torch brings both; sluice links against neither, and needs none of their headers
// at run time.
#pragma once

#include <cstddef>
#include <string>

namespace sluice {

// The functions of the two libraries that the linker calls. Handles are opaque; 0 is success everywhere.
struct LinkLibraries {
  using Program = void*;
  int (*create_program)(Program*, const char* source, const char* name, int headers, const char* const* header_texts,
                        const char* const* header_names);
  int (*compile_program)(Program, int options, const char* const* option_texts);
  int (*destroy_program)(Program*);
  int (*lto_size)(Program, std::size_t*);
  int (*lto)(Program, char*);
  int (*compile_log_size)(Program, std::size_t*);
  int (*compile_log)(Program, char*);

  using Link = void*;
  int (*create_link)(Link*, unsigned options, const char** option_texts);
  int (*destroy_link)(Link*);
  int (*add_data)(Link, int kind, const void* data, std::size_t size, const char* name);
  int (*complete)(Link);
  int (*cubin_size)(Link, std::size_t*);
  int (*cubin)(Link, void*);
  int (*link_log_size)(Link, std::size_t*);
  int (*link_log)(Link, char*);

  std::string versions;     // "NVRTC 13.0, nvJitLink 13.0"
  std::string identity;     // the builds of the two; empty if unknown
  std::string unavailable;  // why they cannot be used; empty if they can
};

// Found once per process. Unsuitable versions are skipped, loaded or not.
const LinkLibraries& link_libraries();

}  // namespace sluice
