// Tiles in shared memory as tensor cores read them: rows of 32, 64 or 128 bytes along the reduction, whose 16-byte
// pieces are permuted so that the same piece of neighbouring rows lies in other banks.
//
//   rows of 128 bytes   piece p of row r lies at p ^ (r & 7)          a tile starts at a multiple of 1024 bytes
//   rows of 64 bytes    piece p of row r lies at p ^ (r >> 1 & 3)
//   rows of 32 bytes    piece p of row r lies at p ^ (r >> 2 & 1)
//
// The permutation is a function of the address alone. So a descriptor may start at any row of a tile: the same tile,
// read from another row on, is what another tap of a convolution multiplies.
#pragma once

#include <cstdint>

#include "kernels/common/qualifiers.h"

namespace sluice {

// `offset`: in bytes, from the tile's start.
SLUICE_HOST_DEVICE std::uint32_t swizzled(std::uint32_t offset, int row_bytes) {
  const std::uint32_t pieces = static_cast<std::uint32_t>(row_bytes) - 16;  // the bits that number a row's pieces
  return offset ^ (offset >> 3 & pieces);
}

// Of the operand that begins at `address`: eight rows after eight, in steps of eight rows' bytes.
SLUICE_HOST_DEVICE std::uint64_t tile_descriptor(std::uint32_t address, int row_bytes) {
  const std::uint64_t layout = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  const std::uint64_t eight_rows = static_cast<std::uint64_t>(row_bytes) * 8 / 16;
  return (address & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | eight_rows << 32 | layout << 62;
}

// To be added to a descriptor: it starts so many bytes later.
SLUICE_HOST_DEVICE std::uint64_t descriptor_step(int bytes) { return static_cast<std::uint64_t>(bytes >> 4); }

}  // namespace sluice
