// conv_transpose1d: every input is spread over the taps,
//
//   output[b, c, i stride + k dilation - padding] += input[b, ci, i] weight[ci, c, k]
//
// Results that are `stride` apart take the same taps from consecutive inputs: such a polyphase component is a
// convolution of stride 1 with those taps reversed. With stride 2, 4 taps, padding 1:
//
//   input 0   taps  0 1 2 3
//   input 1             0 1 2 3
//   input 2                 0 1 2 3
//   output            0 1 2 3 4 5         component 0: outputs 0, 2, 4, from taps 3 and 1
//                                         component 1: outputs 1, 3, 5, from taps 2 and 0
//
// So the kernels are conv1d's, and no zeros are inserted. Depthwise kernels run once for each component. Where channels
// are summed, components are rows of a dense convolution, whose store interleaves them (conv1d/dense/interleave.h).
// There components are numbered by their first tap: component k has taps k, k + stride, .., so all components read the
// same inputs. A tap count that is no multiple of the stride gives two component ranges, components with one tap
// more and the others, each a convolution of its own.
#pragma once

#include <array>

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// The results from `first` on that are a stride apart.
struct PolyphaseComponent {
  long long first, outputs;
  int first_tap, tap_step, taps;  // taps that reach these results; `taps` may be 0
  long long dilation;             // inputs from one of these taps to the next
  long long offset;               // result q takes its tap j from input q + offset - j dilation
};

// `whole` is a transposed convolution, `first` one of its first `stride` results.
PolyphaseComponent polyphase_component(const Conv1dTensors& whole, long long first);

// Polyphase components of a result of at least one position.
long long component_count(const Conv1dTensors& whole);

// conv1d's params for a component of `whole`. The weights are a convolution's with the taps reversed. Inputs that the
// component does not reach are left out.
Conv1dParams component_params(const Conv1dParams& whole, const PolyphaseComponent& component);

// Consecutive components with equally many taps: one dense convolution where channels are summed. A common divisor of
// stride and dilation divides the number of components; results at a nonzero `offset` below the divisor have no tap.
struct ComponentRange {
  int first_component, components;
  int taps;        // taps of a component; 0: no input reaches these results, and sums are zeros
  int offset = 0;  // offset of the results, below the divisor
};

// Components with one tap more, then the others. Either range may be empty, or have no result.
std::array<ComponentRange, 2> ranges_by_taps(const Conv1dTensors& whole);

inline constexpr int kMostCommonDivisor = 4;

// The ranges with at least one result.
struct ComponentRanges {
  int count;
  ComponentRange of[1 + kMostCommonDivisor];
};

ComponentRanges component_ranges(const Conv1dTensors& whole);

// Why the components of a convolution whose channels are summed cannot be rows of dense convolutions, or null.
const char* not_interleaved_because(const Conv1dTensors& whole);
// The dense convolution of a component range, where they can.
Conv1dParams interleaved_params(const Conv1dParams& whole, const ComponentRange& range);
// Whether the rows of those convolutions are ordered by channels, then components (conv1d/interleaved/interleave.h).
bool interleaves_positions(const Conv1dTensors& whole);
// Whether the kernel writes rows of channels for a channels-first result, which are then transposed
// (transpose/transpose.h).
bool converts_results(const Conv1dTensors& whole);

// Why torch's transposed convolution runs, or null where conv1d's kernels run for each component.
const char* transposed_by_aten(const Conv1dTensors& whole, long long groups, bool is_depthwise);
// Why aten's kernel is faster on a GPU than a launch for each component of a depthwise convolution, or null.
const char* bound_by_launches(const Conv1dParams& whole);
// Why a schedule is refused.
inline constexpr const char* kTransposedForcedReason =
    "only depthwise transposed convolutions in which every output has a tap have a choice of schedule";

}  // namespace sluice
