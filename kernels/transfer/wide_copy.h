// memcpy for bytes that nobody reads soon: written past the caches, so that a line of the target is not fetched first.
#pragma once

#include <cstdint>

namespace sluice::transfer {

// Ordinary memcpy below kPastCaches. The non-temporal stores of a longer copy are complete when it returns.
inline constexpr std::int64_t kPastCaches = 2048;

void wide_copy(void* target, const void* source, std::int64_t bytes);

}  // namespace sluice::transfer
