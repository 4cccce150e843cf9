// causal_conv1d is conv1d (kernels/conv1d) with history; what it adds is the state it leaves behind.
#pragma once

#include "kernels/common/operand.h"

namespace sluice {

// states[b, c, j], j < width: the last `width` columns of (history, input). Operands are (batch, channel, position);
// history may be absent, which means zeros.
struct FinalStatesParams {
  Operand<3> input, history, states;
  long long batch, channels, length, width;
};

void final_states_cpu(const FinalStatesParams& params);

}  // namespace sluice
