#include "kernels/linking/libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

namespace sluice {
namespace {

// LTO-IR is tied to the major version of the CUDA that made it.
constexpr int kMajor = SLUICE_CUDA_MAJOR;
constexpr int kMinor = SLUICE_CUDA_MINOR;

struct Search {
  const char* prefix;
  std::string path;
};

int visit_object(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  if (slash == nullptr || std::strncmp(slash + 1, search.prefix, std::strlen(search.prefix)) != 0) return 0;
  search.path = info->dlpi_name;
  return 1;
}

// A library whose file name starts with `prefix`: the loaded one, else the loader's own choice of our version.
void* open_library(const char* prefix, const std::string& beside) {
  Search search{prefix, {}};
  dl_iterate_phdr(visit_object, &search);
  const std::string name = std::string(prefix) + std::to_string(kMajor);
  if (!search.path.empty()) return dlopen(search.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (void* const found = beside.empty() ? nullptr : dlopen((beside + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string directory_of(void* symbol) {
  Dl_info info;
  if (symbol == nullptr || dladdr(symbol, &info) == 0) return {};
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

LinkLibraries search() {
  LinkLibraries found{};
  void* const nvrtc = open_library("libnvrtc.so.", {});
  if (nvrtc == nullptr) {
    found.unavailable = "NVRTC (libnvrtc.so." + std::to_string(kMajor) + ") is not in the process";
    return found;
  }
  int (*nvrtc_version)(int*, int*) = nullptr;
  int (*link_version)(unsigned*, unsigned*) = nullptr;
  const bool compiles =
      find(nvrtc, "nvrtcVersion", nvrtc_version) && find(nvrtc, "nvrtcCreateProgram", found.create_program) &&
      find(nvrtc, "nvrtcCompileProgram", found.compile_program) && find(nvrtc, "nvrtcDestroyProgram", found.destroy_program) &&
      find(nvrtc, "nvrtcGetLTOIRSize", found.lto_size) && find(nvrtc, "nvrtcGetLTOIR", found.lto) &&
      find(nvrtc, "nvrtcGetProgramLogSize", found.compile_log_size) && find(nvrtc, "nvrtcGetProgramLog", found.compile_log);
  void* const linker = open_library("libnvJitLink.so.", directory_of(reinterpret_cast<void*>(nvrtc_version)));
  if (linker == nullptr) {
    found.unavailable = "nvJitLink (libnvJitLink.so." + std::to_string(kMajor) + ") is not in the process";
    return found;
  }
  const bool links =
      find(linker, "nvJitLinkVersion", link_version) && find(linker, "nvJitLinkCreate", found.create_link) &&
      find(linker, "nvJitLinkDestroy", found.destroy_link) && find(linker, "nvJitLinkAddData", found.add_data) &&
      find(linker, "nvJitLinkComplete", found.complete) && find(linker, "nvJitLinkGetLinkedCubinSize", found.cubin_size) &&
      find(linker, "nvJitLinkGetLinkedCubin", found.cubin) && find(linker, "nvJitLinkGetErrorLogSize", found.link_log_size) &&
      find(linker, "nvJitLinkGetErrorLog", found.link_log);
  if (!compiles || !links) {
    found.unavailable = "NVRTC and nvJitLink in the process lack functions that sluice needs";
    return found;
  }
  int major = 0, minor = 0;
  unsigned link_major = 0, link_minor = 0;
  nvrtc_version(&major, &minor);
  link_version(&link_major, &link_minor);
  found.versions = "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + ", nvJitLink " + std::to_string(link_major) +
                   "." + std::to_string(link_minor);
  const auto fits = [](int a, int b) { return a == kMajor && b >= kMinor; };
  if (!fits(major, minor) || !fits(static_cast<int>(link_major), static_cast<int>(link_minor))) {
    found.unavailable = "the process has " + found.versions + ", and kernels built with CUDA " + std::to_string(kMajor) + "." +
                        std::to_string(kMinor) + " need the same major version and at least that minor one";
  }
  return found;
}

}  // namespace

const LinkLibraries& link_libraries() {
  static const LinkLibraries found = search();
  return found;
}

}  // namespace sluice
