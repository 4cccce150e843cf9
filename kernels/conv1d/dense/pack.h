// The weight of a dense convolution in the order in which the kernel's copies fetch it:
//
//   [chunk of input channels][tap][output channel][input channel of the chunk]
//
// so that what a tile of output channels needs of a tap and a chunk is one run of memory, whatever the tile; a row's
// pieces of 16 bytes are swizzled already as tensor cores read them (kernels/mma/swizzle.h). Where there is no such
// channel, they are zeros.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/common/operand.h"
#include "kernels/common/qualifiers.h"
#include "kernels/mma/swizzle.h"

namespace sluice {

inline constexpr int kPieceElements = 8;  // of a half type in 16 bytes
inline constexpr int kRowGroup = 8;       // rows behind which a swizzle begins anew

struct PackedOrder {
  int chunks = 0, taps = 0;
  long long rows = 0;  // output channels, rounded up to whole groups
  int chunk = 0;       // input channels of a row: 64, 32 or 16

  SLUICE_HOST_DEVICE int row_bytes() const { return chunk * 2; }
  SLUICE_HOST_DEVICE int pieces() const { return chunk / kPieceElements; }  // of a row
  long long elements() const { return rows * chunks * taps * chunk; }
  long long bytes() const { return 2 * elements(); }
  bool operator==(const PackedOrder&) const = default;
};

// Chunks of 64 channels, or of 32 where that leaves less of the last one empty. Of many chunks wider ones are worth
// more (H200, 96 and 160 channels: 1.04 to 1.12 times and 1.02 times faster in halves; 224: 0.92 to 0.99).
inline constexpr long long kMostInHalves = 160;
constexpr PackedOrder order_in_chunks(int chunk, long long channels, long long input_channels, int taps) {
  return {.chunks = static_cast<int>((input_channels + chunk - 1) / chunk),
          .taps = taps,
          .rows = (channels + kRowGroup - 1) / kRowGroup * kRowGroup,
          .chunk = chunk};
}
constexpr PackedOrder packed_order(long long channels, long long input_channels, int taps) {
  const bool in_halves = input_channels <= 32 || (input_channels <= kMostInHalves && (input_channels - 1) % 64 < 32);
  return order_in_chunks(input_channels <= 16 ? 16 : in_halves ? 32 : 64, channels, input_channels, taps);
}

struct PackParams {
  Operand<3> weight;                   // (output channel, input channel, tap)
  long long channels, input_channels;  // that it has
  void* packed;                        // of the weight's dtype, a half type; order.elements() of them, at 16 bytes
  PackedOrder order;
};

// One piece of the packed weight: where it lies, and where it comes from.
struct PackedPiece {
  int chunk, tap;
  long long row;
  int place;  // in the row

  // In pieces, from the first one on.
  SLUICE_HOST_DEVICE long long index(const PackedOrder& order) const {
    return ((static_cast<long long>(chunk) * order.taps + tap) * order.rows + row) * order.pieces() + place;
  }
  // The first of eight. The swizzle is its own inverse.
  SLUICE_HOST_DEVICE long long input_channel(const PackedOrder& order) const {
    const int in_group = static_cast<int>(row % kRowGroup) * order.row_bytes();
    const auto from = swizzled(static_cast<std::uint32_t>(in_group + place * 16), order.row_bytes());
    return static_cast<long long>(chunk) * order.chunk + (static_cast<int>(from) - in_group) / 2;
  }
};

// On the host, for tests and for weights that lie there.
void pack_cpu(const PackParams& params);

}  // namespace sluice
