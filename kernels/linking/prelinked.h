// Kernels whose chains were linked when the library was built, which it carries (prelink.cpp makes them): the first
// call of one waits for no compiler.
//
// A list of them is entry after entry: a name in 32 characters, the size of the code in 8 bytes, the code.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::size_t kPrelinkedName = 32;

// `name` is a digest of all that makes one kernel other code than the next one of this library (compile.h).
std::string prelinked_entry(std::string_view name, std::string_view code);

// The code of that name; empty where the list does not have all of it.
std::string_view find_prelinked(std::string_view list, std::string_view name);
int count_prelinked(std::string_view list);

// The library's own list; empty where it was built without NVRTC or nvJitLink at hand.
std::string_view prelinked_kernels();

}  // namespace sluice
