// The shapes for which torch's convolution is faster than the dense method.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// Why aten's convolution is faster than a plan of so many estimated cycles, or null.
const char* slower_because(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device,
                           long long cycles);

}  // namespace sluice
