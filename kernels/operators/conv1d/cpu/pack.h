// Weights in host memory, packed for the dense method.
#pragma once

#include "kernels/operators/conv1d/dense/pack.h"

namespace sluice {

void pack_cpu(const PackParams& params);

}  // namespace sluice
