// Which taps and inputs an output phase has, and which convolutions go by phases.
#include <bit>
#include <numeric>
#include <utility>

#include "kernels/common/int_math.h"
#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv_transpose1d/conv_transpose1d.h"
#include "kernels/conv_transpose1d/policy.h"

namespace sluice {
namespace {

constexpr AtenReason kGroups("sluice's tensor-core kernels for transposed convolutions have no groups");
constexpr AtenReason kUneven(
    "the taps are no multiple of the stride, so that output phases have different counts of them");
constexpr AtenReason kNoTap("stride and dilation have a divisor in common, so that some results have no tap");
constexpr AtenReason kRuns(
    "the result's positions lie side by side, and neighbours of a stride that is no power of two up to 32, or of a "
    "dilation, are no rows of one tile");
constexpr AtenReason kCropped("the padding is so large that the first inputs reach no result");
constexpr AtenReason kLong("the tensor-core kernels count results and weights up to 2^30");
constexpr long long kMostResults = 1 << 30;
constexpr AtenReason kManyPhases("each output phase would be a launch, and there are many");
constexpr AtenReason kNoTaps("some results have no tap, or no input");

long long floor_of(long long value, long long divisor) {
  return value / divisor - (value % divisor != 0 && value < 0 ? 1 : 0);
}

template <int Rank>
void move(Operand<Rank>& operand, int dimension, long long places) {
  operand.data = static_cast<char*>(operand.data) + places * operand.strides[dimension] * size_of(operand.dtype);
}

// Rounded up, of any dividend.
long long ceil_of(long long value, long long divisor) { return -floor_of(-value, divisor); }

bool lies_by_positions(const Conv1dTensors& whole) { return whole.output.strides[1] != 1 || whole.channels == 1; }

// The inputs at which the first and the last results' phases are, and those ahead of the first that its taps reach.
struct Positions {
  long long first, last, ahead;
};

Positions positions_of(const Conv1dTensors& whole) {
  const long long first = ceil_of(whole.padding - (whole.stride - 1) * whole.dilation, whole.stride);
  return {.first = first,
          .last = (whole.output_length - 1 + whole.padding) / whole.stride,
          .ahead = (whole.taps / whole.stride - 1) * whole.dilation - first};
}

// The number below `modulus` whose product with `value`, which has no divisor in common with it, is 1 more than a
// multiple of it: Euclid's algorithm.
long long inverse(long long value, long long modulus) {
  long long rest = modulus, next = value % modulus, factor = 0, next_factor = 1;
  while (next != 0) {
    const long long times = rest / next;
    rest = std::exchange(next, rest - times * next);
    factor = std::exchange(next_factor, factor - times * next_factor);
  }
  return ((factor % modulus) + modulus) % modulus;
}

// The inputs that a phase reaches, and the zeros ahead of the first one.
struct Reach {
  long long first, length, padding;
};

Reach reach_of(const OutputPhase& phase, long long inputs) {
  const long long halo = (phase.taps - 1) * phase.dilation, start = phase.offset - halo;
  const long long first = max_of(0LL, start), end = min_of(inputs, start + phase.outputs + halo);
  return {.first = first, .length = end - first, .padding = first - start};
}

}  // namespace

OutputPhase output_phase(const Conv1dTensors& whole, long long first) {
  const long long divisor = std::gcd(whole.stride, whole.dilation), step = whole.stride / divisor;
  OutputPhase phase{.first = first,
                    .outputs = ceil_div(whole.output_length - first, whole.stride),
                    .first_tap = 0,
                    .tap_step = static_cast<int>(step),
                    .taps = 0,
                    .dilation = whole.dilation / divisor,
                    .offset = 0};
  // The taps k with k dilation = first + padding, but for multiples of the stride: every step-th one.
  const long long ahead = first + whole.padding;
  if (ahead % divisor != 0) return phase;
  const long long tap = ahead / divisor % step * inverse(phase.dilation, step) % step;
  if (tap >= whole.taps) return phase;
  phase.first_tap = static_cast<int>(tap);
  phase.taps = static_cast<int>(ceil_div(whole.taps - tap, step));
  phase.offset = (ahead - tap * whole.dilation) / whole.stride;
  return phase;
}

long long output_phases(const Conv1dTensors& whole) { return min_of(whole.stride, whole.output_length); }

Conv1dParams phase_params(const Conv1dParams& whole, const OutputPhase& phase) {
  Conv1dParams params = whole;
  const int last_tap = phase.first_tap + (phase.taps - 1) * phase.tap_step;
  move(params.weight, 1, last_tap);
  params.weight.strides[1] *= -phase.tap_step;
  if (params.dense.input_channels > 0) {
    move(params.dense.weight, 2, last_tap);
    params.dense.weight.strides[2] *= -phase.tap_step;
  }
  const auto take_phase = [&](Operand<3>& results) {
    move(results, 2, phase.first);
    results.strides[2] *= whole.stride;
  };
  take_phase(params.output);
  for (int k = 0; k < whole.post.operands; ++k) take_phase(params.post_operands[k]);
  params.output_length = phase.outputs;
  params.taps = phase.taps;
  params.stride = 1;
  params.dilation = phase.dilation;
  const Reach reach = reach_of(phase, whole.length);
  params.padding = reach.padding;
  params.length = reach.length;
  move(params.input, 2, reach.first);
  for (int k = 0; k < whole.pre.operands; ++k) move(params.pre_operands[k], 2, reach.first);
  return params;
}

const char* not_interleaved_because(const Conv1dTensors& whole) {
  const long long weights = whole.channels * whole.taps, results = whole.output_length + whole.padding;
  if (whole.taps % whole.stride != 0) return kUneven;
  if (std::gcd(whole.stride, whole.dilation) != 1) return kNoTap;
  const bool has_runs = interleaves_positions(whole.stride, whole.dilation) && whole.stride <= kMostInterleavedPhases;
  if (lies_by_positions(whole) && !has_runs) return kRuns;
  if (positions_of(whole).ahead < 0) return kCropped;
  const long long longest = results + whole.taps * whole.dilation;
  if (max_of(longest, weights + kRowGroup * whole.taps) >= kMostResults) return kLong;
  return nullptr;
}

Conv1dParams interleaved_params(const Conv1dParams& whole) {
  const Positions positions = positions_of(whole);
  Conv1dParams params = whole;
  Interleave& own = params.interleave;
  own = {.phases = static_cast<int>(whole.stride),
         .step = static_cast<int>(whole.dilation),
         .crop = static_cast<int>(whole.padding - whole.stride * positions.first),
         .channels = static_cast<int>(whole.channels),
         .length = static_cast<int>(whole.output_length),
         .by_positions = lies_by_positions(whole)};
  own.phase_bits = std::bit_width(static_cast<unsigned>(own.phases)) - 1;
  own.by_row_channels = FastDivisor(own.row_channels());
  params.channels = own.rows();
  params.output_length = positions.last - positions.first + 1;
  params.multiplier = 1;
  params.taps = static_cast<int>(whole.taps / whole.stride);
  params.stride = 1;
  params.padding = positions.ahead;
  return params;
}

const char* transposed_by_aten(const Conv1dTensors& whole, long long groups, bool is_depthwise) {
  if (groups != 1 && !is_depthwise) return kGroups;
  if (whole.stride > 1 && !is_depthwise) return not_interleaved_because(whole);
  if (output_phases(whole) > kMostPhases) return kManyPhases;
  for (long long first = 0; first < output_phases(whole); ++first) {
    const OutputPhase phase = output_phase(whole, first);
    if (phase.taps == 0 || reach_of(phase, whole.length).length < 1) return kNoTaps;
  }
  return nullptr;
}

}  // namespace sluice
