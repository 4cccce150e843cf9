// The weight of a dense convolution in the order in which the kernel's copies fetch it:
//
//   [k-block of input channels][tap][part][output channel][input channel of the k-block]
//
// Float32 without TF32 has two parts, high and low (kernels/shared/mma/tf32.h).
// A tile's weights of a tap and a k-block are contiguous, whatever the tile. A row's 16-byte words are swizzled as the
// tensor cores read them (kernels/shared/mma/swizzle.h). Channels that do not exist are zeros.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/qualifiers.h"
#include "kernels/shared/mma/swizzle.h"

namespace sluice {

inline constexpr int kSwizzleRows = 8;  // rows of a swizzle atom: the pattern repeats after them

struct PackedOrder {
  int k_blocks = 0, taps = 0;
  long long rows = 0;     // output channels, rounded up to swizzle atoms
  int k_block = 0;        // input channels of a row of 128, 64 or 32 bytes
  int element_bytes = 2;  // bytes of an element: 4 of float32
  int parts = 1;          // parts of an element; float32 of one part is rounded to TF32

  SLUICE_HOST_DEVICE int row_bytes() const { return k_block * element_bytes; }
  SLUICE_HOST_DEVICE int words() const { return row_bytes() / kWordBytes; }  // words of a row
  SLUICE_HOST_DEVICE int word_elements() const { return kWordBytes / element_bytes; }
  SLUICE_HOST_DEVICE long long part_words() const { return rows * words(); }  // words of a part of a tap
  long long elements() const { return rows * k_blocks * taps * parts * k_block; }
  long long bytes() const { return element_bytes * elements(); }
  bool operator==(const PackedOrder&) const = default;
};

// The parts in which tensor cores take the elements of a dtype.
constexpr int parts_of(DType dtype, bool allows_tf32) { return dtype == DType::float32 && !allows_tf32 ? 2 : 1; }

// k-blocks of kWidestRow bytes, or of half of it where less of the last k-block is then empty. Many k-blocks are better
// wide (H200, half types, 96 and 160 channels: 1.04 to 1.12 times and 1.02 times faster in 64 bytes; 224: 0.92 to
// 0.99).
inline constexpr int kWidestRow = 128, kShortestRow = kWidestRow / 4;
constexpr PackedOrder order_in_k_blocks(int k_block, long long channels, long long input_channels, int taps,
                                        int element_bytes, int parts) {
  return {.k_blocks = static_cast<int>((input_channels + k_block - 1) / k_block),
          .taps = taps,
          .rows = (channels + kSwizzleRows - 1) / kSwizzleRows * kSwizzleRows,
          .k_block = k_block,
          .element_bytes = element_bytes,
          .parts = parts};
}
constexpr PackedOrder packed_order(long long channels, long long input_channels, int taps, int element_bytes,
                                   int parts = 1) {
  const int widest = kWidestRow / element_bytes, half = widest / 2, quarter = widest / 4;
  const bool in_halves = input_channels <= half || (input_channels <= 5 * half && (input_channels - 1) % widest < half);
  const int k_block = input_channels <= quarter ? quarter : in_halves ? half : widest;
  return order_in_k_blocks(k_block, channels, input_channels, taps, element_bytes, parts);
}

struct PackParams {
  Operand<3> weight;                   // (output channel, input channel, tap)
  long long channels, input_channels;  // channels of the weight
  void* packed;                        // order.elements() of the weight's dtype, aligned to 16 bytes
  PackedOrder order;
};

// One 16-byte word of the packed weight's first part: where it is stored, and which channels it holds. The second
// part's word is part_words() further.
struct PackedWord {
  int k_block, tap;
  long long row;
  int word;  // index in the row

  // In words from the start.
  SLUICE_HOST_DEVICE long long index(const PackedOrder& order) const {
    return (static_cast<long long>(k_block) * order.taps + tap) * order.parts * order.part_words() +
           row * order.words() + word;
  }
  // The first of the word's input channels. The swizzle is its own inverse.
  SLUICE_HOST_DEVICE long long input_channel(const PackedOrder& order) const {
    const int row_start = static_cast<int>(row % kSwizzleRows) * order.row_bytes();  // in its swizzle atom
    const auto from = swizzled(static_cast<std::uint32_t>(row_start + word * 16), order.row_bytes());
    return static_cast<long long>(k_block) * order.k_block + (static_cast<int>(from) - row_start) / order.element_bytes;
  }
};

}  // namespace sluice
