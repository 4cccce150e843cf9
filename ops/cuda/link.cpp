#include "ops/common/link.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>

#include <atomic>

#include "kernels/linking/libraries.h"
#include "kernels/linking/linker.h"
#include "ops/common/checks.h"

namespace sluice {
namespace {

void warn_once(const char* op, const std::string& error) {
  static std::atomic<bool> warned = false;
  if (warned.exchange(true)) return;
  const std::string text =
      std::string(op) + ": a chain could not be linked, and runs interpreted: same results, slower. " + error;
  aoti_torch_warn(op, "sluice", 0, text.c_str());
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n'                            ? std::string("\\n")
              : static_cast<unsigned char>(c) < 32 ? std::string(" ")
                                                   : std::string(1, c);
  }
  return result + "\"";
}

constexpr const char* kModes[] = {"never", "auto", "always"};

// JSON for sluice.info().
std::string link_info() {
  const LinkStatistics s = link_statistics();
  const LinkLibraries& libraries = link_libraries();
  const auto number = [](const char* name, auto value) {
    return std::string(", \"") + name + "\": " + std::to_string(value);
  };
  return std::string("{\"mode\": \"") + kModes[static_cast<int>(link_mode())] +
         "\", \"libraries\": " + quoted(libraries.versions) + ", \"library_builds\": " + quoted(libraries.identity) +
         ", \"unavailable\": " + quoted(libraries.unavailable) + ", \"cache_directory\": " + quoted(s.cache_directory) +
         ", \"cache_problem\": " + quoted(s.cache_problem) + number("linked_launches", s.linked_launches) +
         number("interpreted_launches", s.interpreted_launches) + number("compiled", s.compiled) +
         number("read_from_disk", s.read_from_disk) + number("read_from_library", s.read_from_library) +
         number("prelinked", s.prelinked) + number("failed", s.failed) + number("postponed", s.postponed) +
         number("linked_kernels", s.linked_kernels) + number("linked_bytes", s.linked_bytes) +
         number("linked_limit", s.linked_limit) + number("compile_seconds", s.compile_seconds) +
         number("small_below", LinkPolicy::kSmall) + number("calls_of_small", LinkPolicy::kCallsOfSmall) +
         ", \"last_error\": " + quoted(s.last_error) + "}";
}

std::string set_mode(const std::string& name) {
  for (int m = 0; m < 3; ++m) {
    if (name == kModes[m]) return kModes[static_cast<int>(set_link_mode(static_cast<LinkMode>(m)))];
  }
  check(false, "_set_link_mode: mode must be never, auto or always, got ", name);
  return {};
}

int64_t set_limit(int64_t kernels) {
  check(kernels >= 0 && kernels <= 1 << 30, "_set_link_limit: kernels must be 0 to 2^30, got ", kernels);
  return set_link_limit(static_cast<int>(kernels));
}

}  // namespace

Form choose_form(const char* op, const LinkRequest& request, const DeviceScope& device, long long elements,
                 Action action) {
  const LinkContext context{.device = device.index(),
                            .compute_capability = device.properties()->compute_capability,
                            .stream = static_cast<cudaStream_t>(device.stream()),
                            .elements = elements,
                            .ahead = action == Action::prepare};
  const LinkOutcome outcome = find_linked(request, context);
  if (outcome.kernel != nullptr) return {.kernel = outcome.kernel};
  if (request.has_cpp()) {
    check(outcome.fault != LinkFault::rejected, op, ": a cpp stage must compile. ", outcome.error);
    const bool short_of_memory = outcome.fault == LinkFault::out_of_memory;
    check(!short_of_memory, op, ": out of memory: a cpp stage could not be linked. ", outcome.error);
    check(false, op, ": a cpp stage must be linked, which is impossible here, because ", outcome.reason,
          outcome.error.empty() ? "" : ": ", outcome.error, "; sluice.prepare(chain, x) links before a capture");
  }
  if (outcome.fault == LinkFault::failed) warn_once(op, outcome.error);
  return {.reason = outcome.reason, .error = outcome.error};
}

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("_link_info() -> str");
  m.def("_set_link_mode(str mode) -> str");
  m.def("_set_link_limit(int kernels) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_link_info", TORCH_BOX(&link_info));
  m.impl("_set_link_mode", TORCH_BOX(&set_mode));
  m.impl("_set_link_limit", TORCH_BOX(&set_limit));
}

}  // namespace sluice
