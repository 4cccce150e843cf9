// Depthwise convolutions on the CPU, shared out among torch's threads.
#pragma once

#include "kernels/conv1d/conv1d.h"

namespace sluice {

void run_depthwise_on_cpu(const Conv1dParams& params);

}  // namespace sluice
