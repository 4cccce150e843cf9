// conv_transpose1d: every input is spread over the taps,
//
//   output[b, c, i stride + k dilation - padding] += input[b, ci, i] weight[ci, c, k]
//
// Seen from the result, positions that are `stride` apart take the same taps from neighbouring inputs: an output phase
// is a convolution of stride 1, with those taps in reverse. With stride 2, 4 taps, padding 1:
//
//   input 0   taps  0 1 2 3
//   input 1             0 1 2 3
//   input 2                 0 1 2 3
//   output            0 1 2 3 4 5         phase 0: outputs 0, 2, 4, of taps 3 and 1
//                                         phase 1: outputs 1, 3, 5, of taps 2 and 0
//
// So the kernels are conv1d's, and nothing is stuffed with zeros: depthwise ones run once for each phase. Where
// channels are summed, phases are rows of a dense convolution, whose store interleaves them
// (conv1d/dense/interleave.h). There phases are counted by the first tap that reaches them, so that tap k of phase k,
// and the taps that are multiples of the stride behind it, reach back over the same inputs in each phase. Taps that are
// no multiple of the stride make two such convolutions, of the phases with one tap more and of the others.
#pragma once

#include "kernels/conv1d/conv1d.h"

namespace sluice {

// The results that begin with `first` and are a stride apart.
struct OutputPhase {
  long long first, outputs;
  int first_tap, tap_step, taps;  // those that reach these results; none where `taps` is 0
  long long dilation;             // inputs from one of these taps to the next
  long long offset;               // result q of the phase takes its tap j from input q + offset - j dilation
};

// `whole`: the numbers of a transposed convolution. `first` is one of its first `stride` results.
OutputPhase output_phase(const Conv1dTensors& whole, long long first);

// Phases of a result of at least one position.
long long output_phases(const Conv1dTensors& whole);

// What conv1d's kernels are given for a phase of `whole`, whose weights are those of a convolution but for the order of
// their taps. Inputs that the phase does not reach are left away.
Conv1dParams phase_params(const Conv1dParams& whole, const OutputPhase& phase);

// Neighbouring phases with equally many taps, which are one dense convolution where channels are summed. With a divisor
// that stride and dilation have in common, phases are as many times fewer, and the results that are `offset` behind
// theirs have no tap.
struct PolyphaseComponent {
  int first_phase, phases;
  int taps;        // of a phase; 0: nothing reaches these results, and sums are zeros
  int offset = 0;  // below the divisor
};

inline constexpr int kMostCommonDivisor = 4;

// Those that have a result.
struct PolyphaseComponents {
  int count;
  PolyphaseComponent of[1 + kMostCommonDivisor];
};

PolyphaseComponents polyphase_components(const Conv1dTensors& whole);

// Why the phases of a convolution whose channels are summed cannot be rows of dense ones; null where they can.
const char* not_interleaved_because(const Conv1dTensors& whole);
// The dense convolution of a component, where they can.
Conv1dParams interleaved_params(const Conv1dParams& whole, const PolyphaseComponent& part);
// Whether its results lie by positions and it writes rows of channels, which are turned afterwards
// (conv1d/dense/turn.h).
bool turns_results(const Conv1dTensors& whole);

// Why torch's transposed convolution is taken, or null where conv1d's kernels are asked for each phase.
const char* transposed_by_aten(const Conv1dTensors& whole, long long groups, bool is_depthwise);
// Why aten's kernel takes less time on a GPU than a launch for each phase of a depthwise one, or null.
const char* bound_by_launches(const Conv1dParams& whole);
// Why a schedule is refused where it is.
inline constexpr const char* kTransposedForcedReason =
    "only depthwise transposed convolutions in which every output has a tap have a choice of schedule";

}  // namespace sluice
