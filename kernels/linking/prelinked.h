// Kernels whose chains were linked when the library was built, and which it contains (prelink.cpp makes them): their
// first call waits for no compiler.
//
// A list of them is entry after entry: a name in 32 characters, the size of the code in 8 bytes, the code.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::size_t kPrelinkedName = 32;

// `name` is a digest of everything that distinguishes one kernel's code from another's in this library (compile.h).
std::string prelinked_entry(std::string_view name, std::string_view code);

// The code of that name; empty if the list does not have all of it.
std::string_view find_prelinked(std::string_view list, std::string_view name);
int count_prelinked(std::string_view list);

// The library's own list; empty if it was built without NVRTC or nvJitLink.
std::string_view prelinked_kernels();

}  // namespace sluice
