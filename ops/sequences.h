// Runs the kernels of kernels/causal_conv1d/sequences.h, divided among torch's threads or launched.
#pragma once

#include "kernels/causal_conv1d/sequences.h"
#include "ops/common/tensor_view.h"

namespace sluice {

// All results and states; `x` is the input. There is at least one result, or one column of state that may change.
void run_sequences(const char* op, const SequencesParams& params, const TensorView& x);

// Only the states.
void keep_states(const char* op, const SequencesParams& params, const TensorView& x);

}  // namespace sluice
