#include "kernels/shared/common/architectures.h"

#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

int capability_of(std::string_view architecture) {
  int capability = 0;
  for (char c : architecture) {
    if (c >= '0' && c <= '9') capability = capability * 10 + (c - '0');
  }
  return capability;
}

// Machine code runs from its own capability on within its generation, PTX also on every later one. With an `a` either
// runs on that capability only; with an `f` PTX stays within its generation.
bool runs_on(std::string_view architecture, int compute_capability, bool is_ptx) {
  const int capability = capability_of(architecture);
  if (architecture.ends_with('a')) return capability == compute_capability;
  const bool same_generation = capability / 10 == compute_capability / 10;
  return capability <= compute_capability && (same_generation || (is_ptx && !architecture.ends_with('f')));
}

}  // namespace

std::string_view code_architecture(int compute_capability, std::string_view architectures, std::string_view ptx) {
  std::string_view best;
  while (!architectures.empty()) {
    const std::size_t end = architectures.find(',');
    const std::string_view one = architectures.substr(0, end);
    architectures.remove_prefix(end == std::string_view::npos ? architectures.size() : end + 1);
    if (!runs_on(one, compute_capability, false)) continue;
    const int capability = capability_of(one), least = capability_of(best);
    if (capability > least || (capability == least && one > best)) best = one;  // 90a before 90
  }
  if (!best.empty()) return best;
  return !ptx.empty() && runs_on(ptx, compute_capability, true) ? ptx : std::string_view();
}

std::string_view code_architecture(int compute_capability) {
  return code_architecture(compute_capability, SLUICE_ARCHITECTURES, SLUICE_PTX);
}

bool runs_ptx(int compute_capability) {
  return !code_architecture(compute_capability).empty() &&
         code_architecture(compute_capability, SLUICE_ARCHITECTURES, "").empty();
}

int code_capability(int compute_capability) {
  const int linked = capability_of(code_architecture(compute_capability, SLUICE_LTO_ARCHITECTURES, SLUICE_PTX));
  return min_of(capability_of(code_architecture(compute_capability)), linked);
}

}  // namespace sluice
