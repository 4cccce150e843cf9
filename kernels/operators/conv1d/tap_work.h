// Instructions that warps issue in the methods that take a depthwise filter's taps one by one, for comparison with the
// other methods.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

struct TapWork {
  double slots;       // issue slots for a tap and 32 outputs
  double fixed_taps;  // all other work, in taps

  double of(const Conv1dProblem& problem) const {
    const double outputs = static_cast<double>(problem.batch) * static_cast<double>(problem.channels) *
                           static_cast<double>(problem.output_length);
    return outputs / 32 * (problem.taps + fixed_taps) * slots;
  }
};

}  // namespace sluice
