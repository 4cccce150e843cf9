#include "kernels/operators/conv1d/cpu/pack.h"

#include <cstdint>

#include "kernels/shared/mma/tf32.h"

namespace sluice {

namespace {

// Elements are copied as bits.
template <class Bits>
void pack_as(const PackParams& params) {
  const PackedOrder& order = params.order;
  const auto* const weight = params.weight.as<const Bits>();
  auto* const packed = static_cast<Bits*>(params.packed);
  const long long* const strides = params.weight.strides;
  const auto write = [&](const PackedWord& word) {
    for (int i = 0; i < order.word_elements(); ++i) {
      const long long input_channel = word.input_channel(order) + i;
      const bool exists = word.row < params.channels && input_channel < params.input_channels;
      const Bits value =
          exists ? weight[word.row * strides[0] + input_channel * strides[1] + word.tap * strides[2]] : 0;
      Bits* const to = packed + word.index(order) * order.word_elements() + i;
      *to = value;
      if constexpr (sizeof(Bits) == 4) {
        const SplitFloat split = parts_of_float(value, order.parts);
        *to = split.high;
        if (order.parts == 2) to[order.part_words() * order.word_elements()] = split.low;
      }
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

}  // namespace

void pack_cpu(const PackParams& params) {
  params.order.element_bytes == 2 ? pack_as<std::uint16_t>(params) : pack_as<std::uint32_t>(params);
}

}  // namespace sluice
