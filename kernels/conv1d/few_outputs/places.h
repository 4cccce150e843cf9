// Which weight and which sum each register of a warp's tensor-core products is. For the kernel, and for the test that
// runs them on the host (tests/cpp/test_few_outputs.cpp).
//
// Every tap of every output channel is a column, channel * taps + tap, of a product that reads each input once:
//
//   P[position][column] = sum_c x[position][c] w[column][c]
//
// A warp has 64 positions and takes 32 input channels at a time, eight words of 16 bytes a lane, straight from memory.
// With l / 4 = g and l % 4 = t for lane l:
//
//   channels side by side    words of channels 8 t ..  of positions g, 8 + g, .. 56 + g; positions are the product's
//                            rows. The channels of a step come in the order in which the words have them.
//   positions side by side   words of positions 8 g .. of channels 2 t, 2 t + 1, 2 t + 8, 2 t + 9, and 16 behind;
//                            columns are the product's rows, and element j of each word is of tile j of positions.
//
// Weights lie in shared memory in the order of the lanes' registers: words of eight elements, one a lane.
#pragma once

#include "kernels/common/int_math.h"

namespace sluice {

inline constexpr int kFewOutputsChannels = 32;  // input channels at a time
inline constexpr int kFewOutputsWords = 8;      // of the input, a lane: for so many channels of a warp's positions
inline constexpr int kWarpPositions = 64;

// Input channels of the weights in shared memory, and their bytes.
SLUICE_HOST_DEVICE constexpr int few_outputs_chunks(int input_channels) {
  return ceil_div(input_channels, kFewOutputsChannels);
}
SLUICE_HOST_DEVICE constexpr int fragments_of_chunk(int columns) { return columns / 8; }
SLUICE_HOST_DEVICE constexpr int weight_bytes(int input_channels, int columns) {
  return few_outputs_chunks(input_channels) * fragments_of_chunk(columns) * 32 * 16;
}

struct WeightPlace {
  int column, channel;  // the latter of the chunk
};
// Of element `e` of the lane's word of a chunk's fragment.
SLUICE_HOST_DEVICE constexpr WeightPlace weight_place(bool by_positions, int columns, int fragment, int lane, int e) {
  const int g = lane / 4, t = lane % 4;
  if (!by_positions) return {fragment * 8 + g, t * 8 + e};
  const int tiles = columns / 16, tile = fragment % tiles, step = fragment / tiles;
  return {tile * 16 + g + e / 2 % 2 * 8, step * 16 + t * 2 + e % 2 + e / 4 * 8};
}

// The first element of the lane's word `i` of the input: of the warp's positions and of the chunk.
SLUICE_HOST_DEVICE constexpr int word_position(bool by_positions, int lane, int i) {
  return by_positions ? lane / 4 * 8 : i * 8 + lane / 4;
}
SLUICE_HOST_DEVICE constexpr int word_channel(bool by_positions, int lane, int i) {
  const int t = lane % 4;
  return by_positions ? i / 4 * 16 + t * 2 + i % 2 + i / 2 % 2 * 8 : t * 8;
}

// Sums of all columns of a tile's positions in shared memory, a row each. With this pitch neither a warp's stores of
// single sums (channels side by side) nor its loads meet in a bank more than twice.
inline constexpr int kSumPitch = 516;

}  // namespace sluice
