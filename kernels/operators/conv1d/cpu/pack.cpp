#include "kernels/operators/conv1d/cpu/pack.h"

#include <cstdint>

namespace sluice {

// Half types are copied as bits.
void pack_cpu(const PackParams& params) {
  const PackedOrder& order = params.order;
  const auto* const weight = params.weight.as<const std::uint16_t>();
  auto* const packed = static_cast<std::uint16_t*>(params.packed);
  const long long* const strides = params.weight.strides;
  const auto write = [&](const PackedWord& word) {
    for (int i = 0; i < kHalvesPerWord; ++i) {
      const long long input_channel = word.input_channel(order) + i;
      const bool exists = word.row < params.channels && input_channel < params.input_channels;
      packed[word.index(order) * kHalvesPerWord + i] =
          exists ? weight[word.row * strides[0] + input_channel * strides[1] + word.tap * strides[2]] : 0;
    }
  };
  for (PackedWord word{}; word.k_block < order.k_blocks; ++word.k_block) {
    for (word.tap = 0; word.tap < order.taps; ++word.tap) {
      for (word.row = 0; word.row < order.rows; ++word.row) {
        for (word.word = 0; word.word < order.words(); ++word.word) write(word);
      }
    }
  }
}

}  // namespace sluice
