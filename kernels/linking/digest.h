// A 128-bit digest for names and damage checks (FNV-1a, twice). Not for security: a cache entry contains its whole key,
// which is compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline std::uint64_t digest_half(std::string_view data, std::uint64_t start) {
  std::uint64_t state = start;
  for (unsigned char byte : data) state = (state ^ byte) * 0x100000001b3ull;
  return state ^ state >> 32;
}

inline std::string digest_text(std::string_view data) {
  std::string text;
  for (std::uint64_t start : {0xcbf29ce484222325ull, 0x9e3779b97f4a7c15ull}) {
    const std::uint64_t half = digest_half(data, start);
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  }
  return text;
}

}  // namespace sluice
