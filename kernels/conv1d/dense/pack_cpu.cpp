#include <cstdint>

#include "kernels/conv1d/dense/pack.h"

namespace sluice {

// Half types are moved as the bits that they are.
void pack_cpu(const PackParams& params) {
  const PackedOrder& order = params.order;
  const auto* const weight = params.weight.as<const std::uint16_t>();
  auto* const packed = static_cast<std::uint16_t*>(params.packed);
  const long long* const strides = params.weight.strides;
  const auto write = [&](const PackedPiece& piece) {
    for (int i = 0; i < kPieceElements; ++i) {
      const long long input_channel = piece.input_channel(order) + i;
      const bool exists = piece.row < params.channels && input_channel < params.input_channels;
      packed[piece.index(order) * kPieceElements + i] =
          exists ? weight[piece.row * strides[0] + input_channel * strides[1] + piece.tap * strides[2]] : 0;
    }
  };
  for (PackedPiece piece{}; piece.chunk < order.chunks; ++piece.chunk) {
    for (piece.tap = 0; piece.tap < order.taps; ++piece.tap) {
      for (piece.row = 0; piece.row < order.rows; ++piece.row) {
        for (piece.place = 0; piece.place < order.pieces(); ++piece.place) write(piece);
      }
    }
  }
}

}  // namespace sluice
