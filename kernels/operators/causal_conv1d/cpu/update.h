// causal_conv1d_update on the CPU.
#pragma once

#include "kernels/operators/causal_conv1d/update.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// Work items: some channels of a sequence each.
inline constexpr long long kUpdateChannels = 256;
inline long long update_items(const UpdateTensors& p) {
  return rows_of_work(p) * ceil_div(p.channels, kUpdateChannels);
}

// Items first .. last - 1. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void causal_conv1d_update_cpu(const UpdateParams& params, long long first, long long last);

}  // namespace sluice
