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

// For the operand that starts at `address`: eight rows after eight, in steps of eight rows' bytes.
SLUICE_HOST_DEVICE std::uint64_t tile_descriptor(std::uint32_t address, int row_bytes) {
  const std::uint64_t layout = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  const std::uint64_t eight_rows = static_cast<std::uint64_t>(row_bytes) * 8 / 16;
  return (address & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | eight_rows << 32 | layout << 62;
}

// Added to a descriptor, moves its start by this many bytes.
SLUICE_HOST_DEVICE std::uint64_t descriptor_step(int bytes) { return static_cast<std::uint64_t>(bytes >> 4); }

}  // namespace sluice
