// Why a convolution goes through aten's: sentences that all begin alike.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice {

inline constexpr char kAtenBecause[] = "auto: aten's convolution and a pass of the chain, because ";

// To be a constant of namespace scope: plans point into it.
template <std::size_t Size>
struct AtenReason {
  char text[sizeof(kAtenBecause) - 1 + Size];

  consteval AtenReason(const char (&because)[Size]) {
    std::copy_n(because, Size, std::copy_n(kAtenBecause, sizeof(kAtenBecause) - 1, text));
  }
  constexpr operator const char*() const { return text; }
};

struct Conv1dPlan;

// Of torch's convolution, for a reason that is an AtenReason or a rule.
Conv1dPlan aten_plan(const char* reason);

}  // namespace sluice
