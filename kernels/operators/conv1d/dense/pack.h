// The weight of a dense convolution in the order in which the kernel's copies fetch it:
//
//   [k-block of input channels][tap][output channel][input channel of the k-block]
//
// A tile's weights of a tap and a k-block are contiguous, whatever the tile. A row's 16-byte words are swizzled as the
// tensor cores read them (kernels/shared/mma/swizzle.h). Channels that do not exist are zeros.
#pragma once

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/qualifiers.h"
#include "kernels/shared/mma/swizzle.h"

namespace sluice {

inline constexpr int kHalvesPerWord = 8;  // half-type elements of a 16-byte word
inline constexpr int kSwizzleRows = 8;    // rows of a swizzle atom: the pattern repeats after them

struct PackedOrder {
  int k_blocks = 0, taps = 0;
  long long rows = 0;  // output channels, rounded up to swizzle atoms
  int k_block = 0;     // input channels of a row: 64, 32 or 16

  SLUICE_HOST_DEVICE int row_bytes() const { return k_block * 2; }
  SLUICE_HOST_DEVICE int words() const { return k_block / kHalvesPerWord; }  // words of a row
  long long elements() const { return rows * k_blocks * taps * k_block; }
  long long bytes() const { return 2 * elements(); }
  bool operator==(const PackedOrder&) const = default;
};

// k-blocks of 64 channels, or of 32 where less of the last k-block is then empty. Many k-blocks are better wide (H200,
// 96 and 160 channels: 1.04 to 1.12 times and 1.02 times faster in halves; 224: 0.92 to 0.99).
inline constexpr long long kMostInHalves = 160;
constexpr PackedOrder order_in_k_blocks(int k_block, long long channels, long long input_channels, int taps) {
  return {.k_blocks = static_cast<int>((input_channels + k_block - 1) / k_block),
          .taps = taps,
          .rows = (channels + kSwizzleRows - 1) / kSwizzleRows * kSwizzleRows,
          .k_block = k_block};
}
constexpr PackedOrder packed_order(long long channels, long long input_channels, int taps) {
  const bool in_halves = input_channels <= 32 || (input_channels <= kMostInHalves && (input_channels - 1) % 64 < 32);
  return order_in_k_blocks(input_channels <= 16 ? 16 : in_halves ? 32 : 64, channels, input_channels, taps);
}

struct PackParams {
  Operand<3> weight;                   // (output channel, input channel, tap)
  long long channels, input_channels;  // channels of the weight
  void* packed;                        // order.elements() of the weight's half type, aligned to 16 bytes
  PackedOrder order;
};

// One 16-byte word of the packed weight: where it is stored, and which channels it holds.
struct PackedWord {
  int k_block, tap;
  long long row;
  int word;  // index in the row

  // In words from the start.
  SLUICE_HOST_DEVICE long long index(const PackedOrder& order) const {
    return ((static_cast<long long>(k_block) * order.taps + tap) * order.rows + row) * order.words() + word;
  }
  // The first of eight input channels. The swizzle is its own inverse.
  SLUICE_HOST_DEVICE long long input_channel(const PackedOrder& order) const {
    const int row_start = static_cast<int>(row % kSwizzleRows) * order.row_bytes();  // in its swizzle atom
    const auto from = swizzled(static_cast<std::uint32_t>(row_start + word * 16), order.row_bytes());
    return static_cast<long long>(k_block) * order.k_block + (static_cast<int>(from) - row_start) / 2;
  }
};

}  // namespace sluice
