// An input laid channels side by side ahead of the dense kernel: a row of channels for each position, filled up with
// zeros to whole pieces. The chain before the convolution, where there is one, is applied on the way.
//
// Where an element of the input serves few products, because taps are few or a stride passes most of them by, or where
// each of many tiles of output channels would transpose it or run the chain on it anew, one pass over all of it takes
// less time.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/common/operand.h"
#include "kernels/conv1d/dense/dense.h"
#include "kernels/conv1d/dense/pack.h"

namespace sluice {

// What lies side by side in the input.
enum class LayFrom : int { positions, channels, words };  // positions or nothing, channels, whole words of channels

struct LayParams {
  Operand<3> input;  // (batch, channel, position), of a half type
  long long batch, channels, length;
  void* laid;  // at 16 bytes

  // From a position to the next one.
  static constexpr long long pitch(long long channels) { return round_up<long long>(channels, kPieceElements); }
  static constexpr long long bytes(long long batch, long long channels, long long length) {
    return 2 * batch * length * pitch(channels);
  }
  Operand<3> result() const {
    return {.data = laid, .dtype = input.dtype, .strides = {length * pitch(channels), 1, pitch(channels)}};
  }
};

// Of a dense convolution's input, `laid` apart.
LayParams lay_params(const Conv1dParams& params);
LayFrom lay_from(const LayParams& params);

}  // namespace sluice
