// causal_conv1d is conv1d (kernels/conv1d) with history; what it adds is the state it leaves behind.
#pragma once

#include "kernels/common/dtype.h"

namespace sluice {

// states[b, c, j], j < width: the last `width` columns of (history, input). Strides in elements, (batch,
// channel, position); history may be null, which means zeros.
struct FinalStatesParams {
  const void* input;
  const void* history;
  void* states;
  DType input_dtype, history_dtype, states_dtype;
  long long batch, channels, length, width;
  long long input_strides[3], history_strides[3], states_strides[3];
};

void final_states_cpu(const FinalStatesParams& params);

}  // namespace sluice
