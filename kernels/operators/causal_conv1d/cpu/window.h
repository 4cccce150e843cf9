// Windows, states and overlaps of chunks on the CPU.
#pragma once

#include "kernels/operators/causal_conv1d/window.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// Each takes a range of a row's channels. Safe to call from several threads on ranges that do not overlap.
template <InstructionSet set>
void window_cpu(const WindowParams& params, long long row, long long first_channel, long long last_channel);
template <InstructionSet set>
void zero_row_cpu(const ZeroRowsParams& params, long long row, long long first_channel, long long last_channel);
template <InstructionSet set>
void overlap_cpu(const OverlapParams& params, long long row, long long first_channel, long long last_channel);

}  // namespace sluice
