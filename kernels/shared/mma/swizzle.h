// Tiles in shared memory as tensor cores read them: rows of 32, 64 or 128 bytes along the reduction, whose 16-byte
// words are permuted so that the same word of adjacent rows is in different banks.
//
//   rows of 128 bytes   word w of row r is at w ^ (r & 7)          a tile starts at a multiple of 1024 bytes
//   rows of 64 bytes    word w of row r is at w ^ (r >> 1 & 3)
//   rows of 32 bytes    word w of row r is at w ^ (r >> 2 & 1)
//
// The permutation is a function of the address alone. So a descriptor may start at any row of a tile: the same tile,
// read from another row on, is the operand of another tap of a convolution.
#pragma once

#include <cstdint>

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

// `offset`: in bytes, from the tile's start.
SLUICE_HOST_DEVICE std::uint32_t swizzled(std::uint32_t offset, int row_bytes) {
  const std::uint32_t words = static_cast<std::uint32_t>(row_bytes) - 16;  // the bits of a word's index in its row
  return offset ^ (offset >> 3 & words);
}

// The descriptor of an operand, in two halves: where it starts, and how its rows lie, eight rows after eight.
SLUICE_HOST_DEVICE std::uint32_t tile_start(std::uint32_t address) { return (address & 0x3ffff) >> 4 | 1u << 16; }
SLUICE_HOST_DEVICE constexpr std::uint32_t tile_layout(int row_bytes) {
  const std::uint32_t layout = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  return static_cast<std::uint32_t>(row_bytes) * 8 / 16 | layout << 30;
}

// Added to a start, moves it by this many bytes.
SLUICE_HOST_DEVICE constexpr std::uint32_t start_step(int bytes) { return static_cast<std::uint32_t>(bytes >> 4); }

}  // namespace sluice
