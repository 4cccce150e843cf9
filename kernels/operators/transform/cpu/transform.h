// transform on the CPU.
#pragma once

#include "kernels/operators/transform/transform.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// Elements first .. last - 1 in the order of the merged dimensions. Safe to call from several threads on ranges that do
// not overlap.
template <InstructionSet set>
void transform_cpu(const TransformParams& params, long long first, long long last);

}  // namespace sluice
