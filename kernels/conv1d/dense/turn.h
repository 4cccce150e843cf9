// Rows of channels into a result whose positions lie side by side, at any strides and alignment: what is left to do
// where a dense kernel's store cannot write runs of positions.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/common/operand.h"

namespace sluice {

struct TurnParams {
  const void* rows;   // (batch, position, channel) of the output's dtype, at 16 bytes
  Operand<3> output;  // (batch, channel, position)
  long long batch, channels, length;

  // From a position's row to the next one: whole words, whatever the dtype. What fills them up is not read.
  static constexpr long long pitch(long long channels) { return round_up<long long>(channels, 8); }
};

}  // namespace sluice
