// Shared objects of this process, as the dynamic loader knows them.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Paths, in the order of loading.
std::vector<std::string> loaded_objects();

// The path of the object that contains `address`; empty if none does.
std::string object_path(const void* address);

// Identifies the build of the object that contains `address`: its build id in hexadecimal digits, or the size and time
// of its file if the linker gave it none. Empty if neither is found.
std::string object_identity(const void* address);

// "/a/b/c" -> "/a/b/"; empty if there is no slash.
std::string directory_of(const std::string& path);

}  // namespace sluice
