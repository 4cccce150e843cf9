#include "kernels/linking/libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "kernels/linking/shared_object.h"

namespace sluice {
namespace {

// LTO-IR is tied to its CUDA's major version, and needs a linker that is not older.
constexpr int kMajor = SLUICE_CUDA_MAJOR;
constexpr int kMinor = SLUICE_CUDA_MINOR;

struct Version {
  int major = 0, minor = 0;

  bool fits() const { return major == kMajor && minor >= kMinor; }
  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// Paths of a library whose file name starts with `prefix`, best first: loaded, next to `neighbour`, in the packages of
// torch's wheels, and the loader's own.
std::vector<std::string> candidates(const std::string& prefix, const std::string& neighbour) {
  const std::string name = prefix + std::to_string(kMajor), torch = "torch/lib/";
  const std::string folders[] = {"cu" + std::to_string(kMajor), "cuda_nvrtc", "nvjitlink"};
  std::vector<std::string> paths;
  const auto add = [&](std::string path) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
  };
  const std::vector<std::string> objects = loaded_objects();
  for (const std::string& path : objects) {
    if (path.compare(directory_of(path).size(), prefix.size(), prefix) == 0) add(path);
  }
  if (!neighbour.empty()) add(directory_of(neighbour) + name);
  for (const std::string& path : objects) {
    std::string packages = directory_of(path);
    if (!packages.ends_with("/" + torch)) continue;
    packages.resize(packages.size() - torch.size());
    for (const std::string& folder : folders) add(packages + "nvidia/" + folder + "/lib/" + name);
  }
  add(name);
  return paths;
}

// Opens candidates until `take` returns no reason against one. Returns why none is suitable, or an empty string.
template <class Take>
std::string open_library(const char* title, const std::string& prefix, const std::string& neighbour, const Take& take) {
  std::string met;
  std::vector<void*> refused;
  for (const std::string& path : candidates(prefix, neighbour)) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || std::find(refused.begin(), refused.end(), library) != refused.end()) continue;
    const std::string reason = take(library);
    if (reason.empty()) return {};
    met += (met.empty() ? "" : ", ") + path + " (" + reason + ")";
    refused.push_back(library);  // stays open, so that its handle is not reused
  }
  return std::string("kernels built with CUDA ") + Version{kMajor, kMinor}.text() + " need " + title +
         " of that or a later minor version; found: " + (met.empty() ? "none" : met);
}

// Looks functions up, and remembers whether all were there.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    complete_ = complete_ && function != nullptr;
  }
  bool complete() const { return complete_; }

 private:
  void* library_;
  bool complete_ = true;
};

std::string take_compiler(void* library, LinkLibraries& found, Version& version) {
  int (*ask_version)(int*, int*) = nullptr;
  Functions functions(library);
  functions.find("nvrtcVersion", ask_version);
  functions.find("nvrtcCreateProgram", found.create_program);
  functions.find("nvrtcCompileProgram", found.compile_program);
  functions.find("nvrtcDestroyProgram", found.destroy_program);
  functions.find("nvrtcGetLTOIRSize", found.lto_size);
  functions.find("nvrtcGetLTOIR", found.lto);
  functions.find("nvrtcGetProgramLogSize", found.compile_log_size);
  functions.find("nvrtcGetProgramLog", found.compile_log);
  if (!functions.complete()) return "lacks functions";
  ask_version(&version.major, &version.minor);
  return version.fits() ? "" : version.text();
}

std::string take_linker(void* library, LinkLibraries& found, Version& version) {
  int (*ask_version)(unsigned*, unsigned*) = nullptr;
  Functions functions(library);
  functions.find("nvJitLinkVersion", ask_version);
  functions.find("nvJitLinkCreate", found.create_link);
  functions.find("nvJitLinkDestroy", found.destroy_link);
  functions.find("nvJitLinkAddData", found.add_data);
  functions.find("nvJitLinkComplete", found.complete);
  functions.find("nvJitLinkGetLinkedCubinSize", found.cubin_size);
  functions.find("nvJitLinkGetLinkedCubin", found.cubin);
  functions.find("nvJitLinkGetErrorLogSize", found.link_log_size);
  functions.find("nvJitLinkGetErrorLog", found.link_log);
  if (!functions.complete()) return "lacks functions";
  unsigned major = 0, minor = 0;
  ask_version(&major, &minor);
  version = {static_cast<int>(major), static_cast<int>(minor)};
  return version.fits() ? "" : version.text();
}

LinkLibraries search() {
  LinkLibraries found{};
  Version compiler, linker;
  const auto compiles = [&](void* library) { return take_compiler(library, found, compiler); };
  found.unavailable = open_library("NVRTC", "libnvrtc.so.", {}, compiles);
  if (!found.unavailable.empty()) return found;
  found.versions = "NVRTC " + compiler.text();
  const void* const in_compiler = reinterpret_cast<const void*>(found.compile_program);
  const std::string path = object_path(in_compiler);
  // NVRTC opens this by its bare name when it compiles.
  dlopen((directory_of(path) + "libnvrtc-builtins.so." + compiler.text()).c_str(), RTLD_NOW | RTLD_LOCAL);

  const auto links = [&](void* library) { return take_linker(library, found, linker); };
  found.unavailable = open_library("nvJitLink", "libnvJitLink.so.", path, links);
  if (!found.unavailable.empty()) return found;
  found.versions += ", nvJitLink " + linker.text();
  const std::string compiler_build = object_identity(in_compiler);
  const std::string linker_build = object_identity(reinterpret_cast<const void*>(found.complete));
  if (!compiler_build.empty() && !linker_build.empty()) found.identity = compiler_build + " " + linker_build;
  return found;
}

}  // namespace

const LinkLibraries& link_libraries() {
  static const LinkLibraries found = search();
  return found;
}

}  // namespace sluice
