// What a depthwise filter's taps take in the methods that go through them one by one, for those that do not to compare
// with: instructions that a warp issues.
#pragma once

#include "kernels/conv1d/conv1d.h"

namespace sluice {

struct TapWork {
  double slots;       // for a tap and 32 outputs
  double fixed_taps;  // that what is done besides is worth

  double of(const Conv1dProblem& problem) const {
    const double outputs = static_cast<double>(problem.batch) * static_cast<double>(problem.channels) *
                           static_cast<double>(problem.output_length);
    return outputs / 32 * (problem.taps + fixed_taps) * slots;
  }
};

}  // namespace sluice
