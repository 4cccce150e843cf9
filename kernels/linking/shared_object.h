// Shared objects of this process, as the dynamic loader knows them.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Paths, in the order of loading.
std::vector<std::string> loaded_objects();

// Of the object that holds `address`; empty where none does.
std::string object_path(const void* address);

// What tells one build of the object that holds `address` from another: its build id in hexadecimal digits, or the size
// and time of its file where the linker gave it none. Empty where neither can be found.
std::string object_identity(const void* address);

// "/a/b/c" -> "/a/b/"; empty where there is no slash.
std::string directory_of(const std::string& path);

}  // namespace sluice
