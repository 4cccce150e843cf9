// Final states of sequences on the CPU.
#pragma once

#include "kernels/operators/causal_conv1d/sequences.h"
#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// Writes a range of the channels of sequence n's final state; `last_subsequence` is n's. Safe to call from
// several threads on ranges that do not overlap.
template <InstructionSet set>
void keep_state_cpu(const SequencesParams& params, const Subsequence& last_subsequence, long long first_channel,
                    long long last_channel);

}  // namespace sluice
