// memcpy for bytes that are not read soon: non-temporal stores, so that a line of the target is not fetched first.
#pragma once

#include <cstdint>

namespace sluice::transfer {

// Ordinary memcpy below kPastCaches bytes. A longer copy's non-temporal stores are complete when it returns.
inline constexpr std::int64_t kPastCaches = 2048;

void wide_copy(void* target, const void* source, std::int64_t bytes);

}  // namespace sluice::transfer
