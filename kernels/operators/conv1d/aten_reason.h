// Why a convolution goes to aten: sentences with one beginning.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice {

inline constexpr char kAtenBecause[] = "auto: aten's convolution and a pass of the chain, because ";

// Must have static storage: plans point into it.
template <std::size_t Size>
struct AtenReason {
  char text[sizeof(kAtenBecause) - 1 + Size];

  consteval AtenReason(const char (&because)[Size]) {
    std::copy_n(because, Size, std::copy_n(kAtenBecause, sizeof(kAtenBecause) - 1, text));
  }
  constexpr operator const char*() const { return text; }
};

struct Conv1dPlan;

// The plan of torch's convolution; `reason` is an AtenReason or a rule.
Conv1dPlan aten_plan(const char* reason);

}  // namespace sluice
