// The input as a tensor map: one thread copies a stage's rows of channels, which may be up to eight positions apart,
// and the padding comes as zeros.
#pragma once

#include "kernels/shared/common/operand.h"

namespace sluice {

struct DensePlan;

// CUDA's CUtensorMap.
struct alignas(128) TensorMap {
  char own[128];
};

struct InputMap {
  TensorMap map;
  int rows = 0, copies = 0;  // rows of a copy, and copies of a stage; 0: the input has no map

  SLUICE_HOST_DEVICE bool exists() const { return copies > 0; }
};

// `input`: (batch, channel, position) of these sizes, channels contiguous and words aligned. Without a map where the
// plan has none, or the driver refuses the strides.
InputMap make_input_map(const Operand<3>& input, const long long (&sizes)[3], const DensePlan& plan);

}  // namespace sluice
