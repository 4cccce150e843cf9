// The fragment layout: which weight and which sum each register of a warp's tensor-core products holds. For the kernel
// and for the test that runs it on the host (tests/cpp/test_few_outputs.cpp).
//
// Every tap of every output channel is an N column, channel * taps + tap, of a product that reads each input once:
//
//   P[position][column] = sum_c x[position][c] w[column][c]
//
// A warp has 64 positions and takes k-blocks of 32 input channels, eight words of 16 bytes a lane, straight from global
// memory. With l / 4 = g and l % 4 = t for lane l:
//
//   contiguous channels      words of channels 8 t ..  of positions g, 8 + g, .. 56 + g; positions are the product's
//                            rows. The channels of a k-step are in the order in which the words have them.
//   contiguous positions     words of positions 8 g .. of channels 2 t, 2 t + 1, 2 t + 8, 2 t + 9, and those plus 16;
//                            columns are the product's rows, and element j of each word belongs to position tile j.
//
// Weights are stored in shared memory in the order of the lanes' registers: words of eight elements, one a lane.
#pragma once

#include "kernels/shared/common/int_math.h"

namespace sluice {

inline constexpr int kFewOutputsChannels = 32;  // input channels of a k-block
inline constexpr int kFewOutputsWords = 8;      // words of the input, a lane, for a k-block of a warp's positions
inline constexpr int kWarpPositions = 64;

// k-blocks of the weights in shared memory, their fragments and bytes.
SLUICE_HOST_DEVICE constexpr int few_outputs_k_blocks(int input_channels) {
  return ceil_div(input_channels, kFewOutputsChannels);
}
SLUICE_HOST_DEVICE constexpr int fragments_of_k_block(int columns) { return columns / 8; }
SLUICE_HOST_DEVICE constexpr int weight_bytes(int input_channels, int columns) {
  return few_outputs_k_blocks(input_channels) * fragments_of_k_block(columns) * 32 * 16;
}

struct WeightFragment {
  int column, channel;  // `channel`: index in the k-block
};
// Column and channel of element `e` of the lane's word of a k-block's fragment.
SLUICE_HOST_DEVICE constexpr WeightFragment weight_fragment(bool by_positions, int columns, int fragment, int lane,
                                                            int e) {
  const int g = lane / 4, t = lane % 4;
  if (!by_positions) return {fragment * 8 + g, t * 8 + e};
  const int tiles = columns / 16, tile = fragment % tiles, step = fragment / tiles;
  return {tile * 16 + g + e / 2 % 2 * 8, step * 16 + t * 2 + e % 2 + e / 4 * 8};
}

// The first element of the lane's input word `i`: its position in the warp's, and its channel in the k-block.
SLUICE_HOST_DEVICE constexpr int word_position(bool by_positions, int lane, int i) {
  return by_positions ? lane / 4 * 8 : i * 8 + lane / 4;
}
SLUICE_HOST_DEVICE constexpr int word_channel(bool by_positions, int lane, int i) {
  const int t = lane % 4;
  return by_positions ? i / 4 * 16 + t * 2 + i % 2 + i / 2 % 2 * 8 : t * 8;
}

// Pitch of P's rows in shared memory: a warp's stores of single sums (contiguous channels) and its loads have at most
// two-way bank conflicts.
inline constexpr int kSumPitch = 516;

}  // namespace sluice
