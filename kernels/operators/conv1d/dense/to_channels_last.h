// Converts an input to channels-last before the dense kernel: a row of channels for each position, padded with zeros to
// whole words. Applies `pre`, where there is one.
//
// One pass over the input is faster where each element is used in few products (few taps, or a stride that skips most
// taps), or where many tiles of output channels would each transpose it or run the chain on it.
#pragma once

#include "kernels/operators/conv1d/dense/dense.h"
#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"

namespace sluice {

// The contiguous dimension of the input: positions or nothing, channels, or aligned words of channels.
enum class ChannelsLastFrom : int { positions, channels, words };

struct ToChannelsLastParams {
  Operand<3> input;  // (batch, channel, position), of a half type
  long long batch, channels, length;
  void* converted;  // result, aligned to 16 bytes

  // Elements from a position to the next position.
  static constexpr long long pitch(long long channels) { return round_up<long long>(channels, kHalvesPerWord); }
  static constexpr long long bytes(long long batch, long long channels, long long length) {
    return 2 * batch * length * pitch(channels);
  }
  Operand<3> result() const {
    return {.data = converted, .dtype = input.dtype, .strides = {length * pitch(channels), 1, pitch(channels)}};
  }
};

// The conversion of a dense convolution's input, without `converted`.
ToChannelsLastParams to_channels_last_params(const Conv1dParams& params);
ChannelsLastFrom channels_last_from(const ToChannelsLastParams& params);

}  // namespace sluice
