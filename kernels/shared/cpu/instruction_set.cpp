#include "kernels/shared/cpu/instruction_set.h"

#include <atomic>
#include <cstdlib>

namespace sluice {
namespace {

constexpr InstructionSet kBestFirst[] = {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::baseline};

bool is_usable(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return __builtin_cpu_supports("x86-64-v4");
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("x86-64-v3");
#endif
  return set == InstructionSet::baseline;
}

// -1: not chosen yet.
std::atomic<int> chosen{-1};

}  // namespace

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx512: return "avx512";
    case InstructionSet::avx2: return "avx2";
    default: return "baseline";
  }
}

bool use_instruction_set(std::string_view name) {
  for (InstructionSet set : kBestFirst) {
    if (name != name_of(set) || !is_usable(set)) continue;
    chosen = static_cast<int>(set);
    return true;
  }
  return false;
}

InstructionSet instruction_set() {
  if (chosen < 0) {
    const char* const wanted = std::getenv("SLUICE_CPU");
    if (wanted == nullptr || !use_instruction_set(wanted)) {
      for (InstructionSet set : kBestFirst) {
        if (is_usable(set)) {
          chosen = static_cast<int>(set);
          break;
        }
      }
    }
  }
  return static_cast<InstructionSet>(chosen.load(std::memory_order_relaxed));
}

std::string usable_instruction_sets() {
  std::string names;
  for (InstructionSet set : kBestFirst) {
    if (is_usable(set)) names += (names.empty() ? "" : " ") + std::string(name_of(set));
  }
  return names;
}

}  // namespace sluice
