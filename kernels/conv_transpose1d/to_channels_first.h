// Transposes rows of channels into a channels-first result of any strides and alignment, where a dense kernel's store
// cannot write contiguous positions.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/common/operand.h"

namespace sluice {

struct ToChannelsFirstParams {
  const void* rows;   // (batch, position, channel) of the output's dtype, aligned to 16 bytes
  Operand<3> output;  // (batch, channel, position)
  long long batch, channels, length;

  // Elements from a position's row to the next one: whole words of any dtype. The padding is not read.
  static constexpr long long pitch(long long channels) { return round_up<long long>(channels, 8); }
};

}  // namespace sluice
