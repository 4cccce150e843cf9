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
  Operand<3> input;  // (batch, channel, position)
  long long batch, channels, length;
  void* converted;  // result, aligned to 16 bytes

  // Elements from a position to the next position.
  SLUICE_HOST_DEVICE static long long pitch(DType dtype, long long channels) {
    return round_up<long long>(channels, word_elements(dtype));
  }
  static long long bytes(DType dtype, long long batch, long long channels, long long length) {
    return static_cast<long long>(size_of(dtype)) * batch * length * pitch(dtype, channels);
  }
  Operand<3> result() const {
    const long long row = pitch(input.dtype, channels);
    return {.data = converted, .dtype = input.dtype, .strides = {length * row, 1, row}};
  }
};

// The conversion of a dense convolution's input, without `converted`.
ToChannelsLastParams to_channels_last_params(const Conv1dParams& params);
ChannelsLastFrom channels_last_from(const ToChannelsLastParams& params);

}  // namespace sluice
