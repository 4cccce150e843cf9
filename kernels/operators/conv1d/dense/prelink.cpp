// A build tool: links the chains that come with the library into the kernels of one module.
//
//   sluice_prelink MODULE FATBINARY CACHE LIST
//
// MODULE is an embedded module's name, FATBINARY CUDA's program of that name, which compresses, CACHE a directory that
// keeps linked kernels for the next build of the same sources, and LIST the file to write (prelinked.h). If nothing can
// be linked the list is empty and a line says why: the library then links all chains at run time.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "kernels/linking/compile.h"
#include "kernels/linking/disk_cache.h"
#include "kernels/linking/embedded.h"
#include "kernels/linking/libraries.h"
#include "kernels/linking/prelinked.h"
#include "kernels/linking/source.h"
#include "kernels/operators/conv1d/dense/prelinked.h"

namespace sluice {
namespace {

constexpr int kComputeCapability = 90;  // the only one with a dense kernel
constexpr unsigned long long kCacheLimit = 128ull << 20;

struct Build {
  std::string module, fatbinary, cache, list;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << data;
}

// Compresses to a fourth of the cubin; CUDA unpacks it when loading. Empty on failure. --compress-mode=size gives a
// fifth in five times the time: 5 seconds for all.
std::string compressed(const Build& build, const LinkRequest& request, const std::string& cubin) {
  const std::string from = build.list + ".cubin", to = build.list + ".fatbin";
  write_file(from, cubin);
  const std::string arch(module_architecture(request.module, kComputeCapability));
  const std::string command = "\"" + build.fatbinary +
                              "\" -64 --compress-all --compress-mode=balance \"--create=" + to +
                              "\" \"--image3=kind=elf,sm=" + arch + ",file=" + from + "\"";
  const bool done = std::system(command.c_str()) == 0;
  std::string fatbin = done ? read_file(to) : std::string();
  for (const std::string& scratch : {from, to}) std::remove(scratch.c_str());
  return fatbin;
}

// The request's entry of the list; empty, with a line of output, if it cannot be linked.
std::string entry_of(const Build& build, const DiskCache& cache, const LinkRequest& request) {
  const std::string source = chain_source(request);
  const std::string key = compile_fingerprint(request, kComputeCapability) + source;
  std::optional<std::string> code = cache.read(key);
  if (!code.has_value()) {
    const Compilation compilation = compile_chain(request, source, kComputeCapability);
    if (compilation.error.empty()) code = compressed(build, request, compilation.cubin);
    if (!code.has_value() || code->empty()) {
      std::cerr << "sluice_prelink: " << request.kernel << " is left out: " << compilation.error << "\n";
      return {};
    }
    cache.write(key, *code);
  }
  return prelinked_entry(prelinked_name(request, source, kComputeCapability), *code);
}

int prelink(const Build& build) {
  const std::string& unavailable = link_libraries().unavailable;
  std::string list;
  if (unavailable.empty()) {
    const bool stores = !link_libraries().identity.empty();  // otherwise an entry could be another library's
    const DiskCache cache(stores ? build.cache : std::string(), kCacheLimit);
    for_each_prelinked([&](const LinkRequest& request) {
      if (request.module == build.module) list += entry_of(build, cache, request);
    });
  } else {
    std::cerr << "sluice_prelink: no chain is prelinked with " << build.module << ": " << unavailable << "\n";
  }
  write_file(build.list, list);
  return read_file(build.list) == list ? 0 : 1;
}

}  // namespace
}  // namespace sluice

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "usage: sluice_prelink MODULE FATBINARY CACHE LIST\n";
    return 2;
  }
  return sluice::prelink(
      {.module = arguments[1], .fatbinary = arguments[2], .cache = arguments[3], .list = arguments[4]});
}
