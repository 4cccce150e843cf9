#include "kernels/linking/compile.h"

#include <vector>

#include "kernels/linking/digest.h"
#include "kernels/linking/embedded.h"
#include "kernels/linking/libraries.h"
#include "kernels/linking/source.h"

namespace sluice {
namespace {

constexpr int kInputFatbin = 4, kInputLtoir = 3;  // values of nvJitLinkInputType

LinkFault fault_of_compiler(int status) {
  switch (status) {
    case 1: return LinkFault::out_of_memory;  // NVRTC_ERROR_OUT_OF_MEMORY
    case 6: return LinkFault::rejected;       // NVRTC_ERROR_COMPILATION
    default: return LinkFault::failed;
  }
}

LinkFault fault_of_linker(int status) {
  return status == 7 ? LinkFault::postponed : LinkFault::failed;  // NVJITLINK_ERROR_THREADPOOL: no thread available
}

// A module holds LTO-IR for each of its architectures, from which the linker makes the device's code.
std::string source_arch(const LinkRequest& request, int compute_capability) {
  return std::string(module_architecture(request.module, compute_capability));
}
std::string target_arch(const LinkRequest& request, int compute_capability) {
  const std::string source = source_arch(request, compute_capability);
  return std::to_string(compute_capability) + (source.ends_with('a') ? "a" : "");
}

std::vector<std::string> compile_options(const LinkRequest& request, int compute_capability) {
  return {"--gpu-architecture=compute_" + source_arch(request, compute_capability), "-std=c++17", "-dlto",
          "--fmad=false", "-default-device"};
}

// No contraction of products and sums here either, or the linked form's bits would differ from the interpreter's.
std::vector<std::string> link_options(const LinkRequest& request, int compute_capability) {
  return {"-arch=sm_" + target_arch(request, compute_capability), "-lto", "-O3", "-fma=0",
          "-kernels-used=" + std::string(request.kernel)};
}

std::string options_text(const LinkRequest& request, int compute_capability) {
  std::string text;
  for (const std::string& option : compile_options(request, compute_capability)) text += " " + option;
  for (const std::string& option : link_options(request, compute_capability)) text += " " + option;
  return text;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

template <class Handle>
std::string read_log(Handle handle, int (*size_of_log)(Handle, std::size_t*), int (*read)(Handle, char*)) {
  std::size_t size = 0;
  if (size_of_log(handle, &size) != 0 || size < 2) return {};
  std::string log(size, '\0');
  read(handle, log.data());
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

// LTO-IR of the chain, or an error.
Compilation compile_source(const LinkRequest& request, const std::string& source, int compute_capability) {
  const LinkLibraries& libraries = link_libraries();
  std::vector<const char*> texts, names;
  for (const EmbeddedFile& header : embedded_headers()) {
    texts.push_back(header.data.data());
    names.push_back(header.name);
  }
  Compilation result;
  LinkLibraries::Program program = nullptr;
  int status = libraries.create_program(&program, source.c_str(), "chain", static_cast<int>(names.size()), texts.data(),
                                        names.data());
  if (status != 0) {
    result.fault = fault_of_compiler(status);
    result.error = "NVRTC could not start, with status " + std::to_string(status);
    return result;
  }
  const std::vector<std::string> options = compile_options(request, compute_capability);
  status = libraries.compile_program(program, static_cast<int>(options.size()), pointers(options).data());
  std::size_t size = 0;
  if (status == 0 && libraries.lto_size(program, &size) == 0 && size > 0) {
    result.cubin.resize(size);
    libraries.lto(program, result.cubin.data());
  } else {
    const std::string log = read_log(program, libraries.compile_log_size, libraries.compile_log);
    result.fault = fault_of_compiler(status);
    result.error = "NVRTC failed with status " + std::to_string(status) + ": " + explain_log(request, log);
  }
  libraries.destroy_program(&program);
  return result;
}

}  // namespace

Compilation compile_chain(const LinkRequest& request, const std::string& source, int compute_capability) {
  const LinkLibraries& libraries = link_libraries();
  const Compilation chain = compile_source(request, source, compute_capability);
  if (!chain.error.empty()) return chain;

  Compilation result;
  const std::vector<std::string> options = link_options(request, compute_capability);
  std::vector<const char*> texts = pointers(options);
  LinkLibraries::Link link = nullptr;
  int status = libraries.create_link(&link, static_cast<unsigned>(texts.size()), texts.data());
  if (status != 0) {
    result.fault = fault_of_linker(status);
    result.error = "nvJitLink could not start for " + options[0];
    return result;
  }
  const EmbeddedFile module = embedded_module(request.module);
  std::size_t size = 0;
  status = libraries.add_data(link, kInputFatbin, module.data.data(), module.data.size(), module.name);
  if (status == 0) status = libraries.add_data(link, kInputLtoir, chain.cubin.data(), chain.cubin.size(), "chain");
  if (status == 0) status = libraries.complete(link);
  if (status == 0) status = libraries.cubin_size(link, &size);
  if (status == 0 && size > 0) {
    result.cubin.resize(size);
    status = libraries.cubin(link, result.cubin.data());
  }
  if (status != 0 || size == 0) {
    result.cubin.clear();
    result.fault = fault_of_linker(status);
    result.error = "nvJitLink failed with status " + std::to_string(status) + ": " +
                   read_log(link, libraries.link_log_size, libraries.link_log);
  }
  libraries.destroy_link(&link);
  return result;
}

std::string compile_fingerprint(const LinkRequest& request, int compute_capability) {
  const LinkLibraries& libraries = link_libraries();
  std::string text = libraries.versions + " " + libraries.identity + options_text(request, compute_capability);
  const EmbeddedFile module = embedded_module(request.module);
  text += "\n" + std::string(module.name) + " " + digest_text(module.data);
  for (const EmbeddedFile& header : embedded_headers()) text += " " + digest_text(header.data);
  return text + "\n";
}

std::string prelinked_name(const LinkRequest& request, const std::string& source, int compute_capability) {
  return digest_text(options_text(request, compute_capability) + "\n" + source);
}

}  // namespace sluice
